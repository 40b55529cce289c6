"""From many results and what is asked of them to a decision.

Data flows one way: **results → runs → configurations → lines met or failed → rank and
Pareto set → report**. Nothing here measures, and nothing is ranked that does not compare.
"""
