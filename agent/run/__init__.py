"""One run: plan, worker processes, LoadGen, verdict, result directory."""
