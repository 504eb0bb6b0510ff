"""ask.py PLAN NUMBER...: loads a plan that a C program saved, and asks it."""
import sys

import weir

plan = weir.Plan(sys.argv[1])
print("inputs:", plan.inputs)
numbers = [float(text) for text in sys.argv[2:]]
with weir.Session(plan) as session:
    session.start(len(numbers))
    for x in numbers:
        session.push("x", x)
        print(x, "->", session.pull("y"))
    session.wait()
