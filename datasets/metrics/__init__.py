"""What answers are worth: every metric is a function of how often each sample counts.

Counting each sample once gives the value; counting samples as a draw with replacement
has them gives one bootstrap value. So an interval comes from the very code that gives the
value, and whatever is costly (sorting, matching boxes) is done once.

They need numpy only: a board scores what it measured without scikit-learn on it. Where a
metric is more than a sum (mAP, BLEU, WER), the library that defines it computes it.
"""
