"""Preprocessed samples on the disk: made once, by all cores, and found again by content.

Decoding 50,000 photographs takes a board minutes; reading them back in the model's own
input type takes seconds. They lie in shards of some megabytes. A shard is named by what
went into it: the content of its files and how they are made into inputs. So a changed
photograph, task file or model shape finds no shard and makes a new one, and a copied
folder finds the old ones. Which content a file has is remembered by its path, size and
time of change, so that nothing is read twice to be recognised.

What is interrupted goes on where it was: whole shards stay.
"""
