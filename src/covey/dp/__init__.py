"""What a run guarantees: differential privacy, accounted for and checked.

`guarantees` folds the events of a run, `guarantee_status` its history; `forecast` says the
same of settings; `theorem1` holds what the second paper claims.
"""
