"""Names of the files in a result directory."""

#: The result itself.
RESULT = "result.json"
#: Every raw time, and the array of every query's latency in it.
LATENCIES, LATENCY_NS = "latencies.npz", "latency_ns"
#: What the model answered, and the array in it.
PREDICTIONS, ANSWERS = "predictions.npz", "predictions"
#: The task file that the run went by, where the user had one or one was guessed.
TASK = "task.toml"
