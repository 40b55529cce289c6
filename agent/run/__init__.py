"""One run: plan, worker processes, LoadGen, verdict, result directory.

The door is :func:`edgeperf.agent.run.plan.make_plan` and
:func:`edgeperf.agent.run.execute.execute`; nothing is imported here, since each process
of a run loads only its own part.
"""
