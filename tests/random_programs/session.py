"""Draws statements, runs them and keeps them for the report."""

from pathlib import Path

from . import oracles, prelude

vars(prelude).update({name: value for name, value in vars(oracles).items()
                      if not name.startswith("__") and name not in vars(prelude)})

COMPARISONS = {"deterministic", "round_trip", "frozen_stay", "nothing_moves", "refused_unchanged",
               *(name for name, value in vars(oracles).items() if callable(value))}
DTYPES = ("float32", "float32", "float32", "float64", "float16", "int8", "int16", "int32", "int64",
          "uint8", "uint16", "uint64", "bool", "longdouble", "complex64", "object", "U3",
          "datetime64[s]")
LAYOUTS = ("c", "c", "c", "f", "strided", "reversed", "transposed", "broadcast", "readonly",
           "swapped", "unaligned", "list", "memmap", "subclass", "nan", "huge")
JUNK = ("None", "0", "-1", "2.5", "True", "2**31", "2**40", "2**63", "2**70", "'3'", "''", "[]",
        "()", "{}", "float('nan')", "float('inf')", "-1e300", "object()", "np.zeros(0)",
        "np.float32(3)", "np.int64(2)", "b'x'", "print", "[[1, 2], [3]]", "1e-400", "-2**31")


class Session:
    """One random program.

    Parameters
    ----------
    rng : random.Random
    log : callable, optional
        Called with every statement before it runs.
    """

    junk = JUNK

    def __init__(self, rng, log=None):
        self.rng = rng
        self.log = log
        self.lines = []
        self.space = vars(prelude)
        self.kinds = {}  # name of an object to what it is
        self.about = {}  # what else is known about it
        self.count = 0

    # -- chance --------------------------------------------------------------------------

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *items):
        return items[self.rng.randrange(len(items))]

    def seed(self):
        return self.rng.randrange(1 << 20)

    def size(self, top=9):
        """Mostly small and odd sizes."""
        return self.rng.randint(1, self.pick(2, 3, top))

    def or_junk(self, text, p=0.04):
        return self.pick(*JUNK) if self.chance(p) else str(text)

    def array(self, shape, limit=None, p_odd=0.3):
        """An expression of an array; integers below ``limit`` where it is given."""
        if self.chance(0.02):
            return self.pick(*JUNK)
        shape = list(shape)
        if self.chance(0.05) and shape:
            i = self.rng.randrange(len(shape))
            kind = self.rng.randrange(4)
            if kind == 0:
                shape[i] += self.pick(-1, 1)
                shape[i] = max(0, shape[i])
            elif kind == 1:
                shape.insert(i, 1)
            elif kind == 2:
                del shape[i]
            else:
                shape[i] = 0
        dtype = self.pick(*DTYPES) if self.chance(p_odd) else "float32"
        layout = self.pick(*LAYOUTS) if self.chance(p_odd) else "c"
        if limit is not None:
            low, high = (0, limit) if self.chance(0.95) else (-1, limit + 1)
            if self.chance(0.7):
                dtype = "int64"
            text = f"arr({self.seed()}, {tuple(shape)}, {dtype!r}, {layout!r}, {low}, {high})"
        else:
            text = f"arr({self.seed()}, {tuple(shape)}, {dtype!r}, {layout!r})"
        if self.chance(0.02):
            action = self.meddling()
            if action:
                text = f"Evil({text}, {action!r})"
        return text

    def meddling(self):
        """A statement for moments when nobody expects one."""
        name = self.any("trainer", "model", "snapshot", "context", "dataset")
        if name is None:
            return "gc.collect()"
        kind = self.kinds[name]
        own = {
            "model": (f"{name}.compile('sgd', 'mse')", f"{name}.stop_training = True",
                      f"{name}.get_weights(copy=False)[0][...] = 0.5",
                      f"{name}.set_weights([])"),
            "trainer": (f"{name}.free()", f"{name}.snapshot()", f"{name}.n_steps",
                        f"{name}.get_weights(copy=False)[0][...] = 0.5"),
            "snapshot": (f"{name}.free()", f"{name}.get_weights()"),
            "context": (f"{name}.free()", f"{name}.reset(True)", f"{name}.alloc()"),
            "dataset": (f"{name}.free()", f"{name}.data[...] = 1"),
        }[kind]
        return self.pick("raise Boom('now')", "gc.collect()", "pyggml.set_num_threads(2)",
                         "pyggml.set_num_threads(1)", f"repr({name})", *own, *own)

    # -- objects -------------------------------------------------------------------------

    def new(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def any(self, *kinds):
        found = [n for n, k in self.kinds.items() if k in kinds and n in self.space]
        return self.pick(*found) if found else None

    def make(self, kind, expression, **about):
        """Assign to a new name; returns it, or None where it was refused."""
        name = self.new(kind)
        if not self.do(f"{name} = {expression}"):
            return None
        self.kinds[name] = kind
        self.about[name] = about
        return name

    def drop(self, name):
        if self.do(f"del {name}"):
            del self.kinds[name]
            del self.about[name]

    def value(self, name):
        return self.space[name]

    def value_of(self, expression, otherwise):
        """A small positive integer that an expression stands for, or another."""
        try:
            value = int(eval(expression, dict(self.space)))
        except Exception:
            return otherwise
        return value if 0 < value < 100 else otherwise

    # -- running -------------------------------------------------------------------------

    def do(self, code):
        """Run a statement; True if it went through."""
        if code.split("(")[0] in COMPARISONS:  # what changes the thing meanwhile proves nothing
            code = code.replace("Evil(", "harmless(")
        self.lines.append(code)
        if self.log is not None:
            self.log(code)
        return prelude.attempt(code)

    def end(self):
        """Drop everything that is left, in any order."""
        names = [n for n in self.kinds if n in self.space]
        self.rng.shuffle(names)
        for name in names:
            self.drop(name)
        self.do("gc.collect()")


def script(lines):
    """A program as a script that runs by itself."""
    head = "\n\n".join(Path(module.__file__).read_text(encoding="utf-8")
                       for module in (prelude, oracles))
    head = head.replace("from .prelude import", "from __main__ import")
    return head + "\n\n# The program.\n" + "".join(f"attempt({line!r})\n" for line in lines)
