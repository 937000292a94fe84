"""Random programs over pyggml's interface: shared by tests/test_fuzz.py and tools/fuzz.py.

A program is a list of Python statements, drawn one after the other by somebody who looks at what
the ones before left behind: a state machine over models, trainers, snapshots, contexts and data
sets. Each statement may end with a documented exception. It may not end with another one, nor
leave an object half changed, nor end the process.
"""
