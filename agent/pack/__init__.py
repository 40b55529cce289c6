"""The evidence pack: results with spec, raw data and logs in one archive that anybody can check.

``evidence`` collects and checks what goes in, ``archive`` writes it the same way every
time, ``verify`` reads it without unpacking and believes nothing.
"""
