"""tests/python_test.py FOLDER: python/weir on the plans that tests/python_plan.c wrote into FOLDER."""

import gc
import os
import sys
import tempfile
import threading
import unittest

import numpy
import weir

FOLDER = sys.argv.pop()
WAIT_MS = 60000


def plan(name):
    return weir.Plan(os.path.join(FOLDER, name + ".plan"))


class Plans(unittest.TestCase):
    def test_tells_what_it_takes_and_gives(self):
        p = plan("stream")
        self.assertEqual({n: (h.kind, h.dtype.name, h.shape) for n, h in p.inputs.items()},
                         {"x": ("push", "float32", (2, 3)), "i": ("push", "int32", (4,))})
        self.assertEqual({n: h.shape for n, h in p.outputs.items()}, {"y": (2, 3), "half": (2, 3), "rows": (4, 2)})
        self.assertEqual({n: (w.kind, w.shape) for n, w in p.parameters.items()},
                         {"table/weight": ("parameter", (8, 2))})
        p.check()
        self.assertGreater(p.bytes(), 0)
        self.assertEqual(p.micro_batches, 1)

    def test_what_is_no_plan_is_an_error_with_its_sentence(self):
        with self.assertRaisesRegex(weir.Error, "nowhere.plan"):
            plan("nowhere")


class Streams(unittest.TestCase):
    def step(self, session, x, i):
        session.push("x", x)
        session.push("i", i)
        session.run(1)
        return [session.pull(name) for name in ("y", "half", "rows")]

    def test_values_go_in_and_come_out(self):
        x = numpy.arange(6, dtype=numpy.float32).reshape(2, 3) / 7
        with weir.Session(plan("stream")) as s:
            table = numpy.arange(16).reshape(8, 2)
            s.write("table/weight", table)
            self.assertTrue((s.read("table/weight") == table).all())
            for _ in range(3):
                y, half, rows = self.step(s, x, [7, 0, 3, 3])
                numpy.testing.assert_array_equal(y, 2 * x + 1)
                numpy.testing.assert_allclose(half, x, rtol=2 ** -8)
                numpy.testing.assert_array_equal(half.view(numpy.uint32) & 0xFFFF, 0)
                numpy.testing.assert_array_equal(rows, table[[7, 0, 3, 3]])
            self.assertEqual(s.step, 3)

    def test_integers_go_in_and_come_out(self):
        wide = numpy.array([2 ** 62 + 1, -2 ** 63, -7, 300])
        with weir.Session(plan("integers")) as s:
            s.push("wide", wide)
            s.run(1)
            again, narrow = s.pull("wide again"), s.pull("narrow")
        numpy.testing.assert_array_equal(again, wide.reshape(4, 1))
        numpy.testing.assert_array_equal(narrow, [127, -128, -7, 127])
        self.assertEqual((again.dtype, narrow.dtype), (numpy.int64, numpy.int8))

    def test_dlpack_goes_in_and_comes_out(self):
        class Foreign:  # an array of another library
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **more):
                return self.array.__dlpack__(**more)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        x = numpy.ones((2, 3), numpy.float32)
        with weir.Session(plan("stream")) as s:
            y, _, _ = self.step(s, Foreign(x), numpy.zeros(4, numpy.int32))
        numpy.testing.assert_array_equal(numpy.from_dlpack(y), 3 * x)

    def test_strided_values_are_taken_as_they_are_meant(self):
        x = numpy.arange(6, dtype=numpy.float32).reshape(3, 2).T
        with weir.Session(plan("stream")) as s:
            y, _, _ = self.step(s, x, [0, 0, 0, 0])
        numpy.testing.assert_array_equal(y, 2 * x + 1)

    def test_what_does_not_fit_is_refused_and_harms_nothing(self):
        with weir.Session(plan("stream")) as s:
            for value, text in ((numpy.ones((3, 2), numpy.float32), "shape"), ("text", "float32")):
                with self.assertRaisesRegex(weir.Error, text):
                    s.push("x", value)
            with self.assertRaisesRegex(weir.Error, "int32"):
                s.push("i", numpy.ones(4, numpy.float32))
            with self.assertRaisesRegex(weir.Error, "no input \"z\"; it has: x, i"):
                s.push("z", 1)
            with self.assertRaisesRegex(weir.Error, "at rest"):
                s.pull("y")
            y, _, _ = self.step(s, numpy.zeros((2, 3)), [0, 0, 0, 0])
            self.assertTrue((y == 1).all())
        with self.assertRaisesRegex(weir.Error, "closed"):
            s.run(1)
        s.close()

    def test_threads_push_and_pull_while_it_runs(self):
        count, got = 50, []
        with weir.Session(plan("stream")) as s:
            def pull():
                for _ in range(count):
                    got.append(s.pull("y", WAIT_MS)[0, 0])
                    s.pull("half", WAIT_MS), s.pull("rows", WAIT_MS)
            thread = threading.Thread(target=pull)
            s.start(count)
            thread.start()
            for k in range(count):
                s.push("x", numpy.full((2, 3), k, numpy.float32), WAIT_MS)
                s.push("i", numpy.zeros(4, numpy.int32), WAIT_MS)
            s.wait(WAIT_MS)
            thread.join()
        self.assertEqual(got, [2 * k + 1 for k in range(count)])


class Training(unittest.TestCase):
    def source(self, step, micro):
        return numpy.random.default_rng(step).standard_normal((8, 1)).astype(numpy.float32)

    def session(self, losses, **options):
        return weir.Session(plan("train"), sources={"x": self.source},
                            sinks={"loss": lambda value, step, micro: losses.append((step, float(value)))}, **options)

    def test_learns_a_line_from_a_source_in_python(self):
        losses = []
        with self.session(losses) as s:
            s.run(100)
            self.assertAlmostEqual(float(s.read("line/weight")[0, 0]), 3, delta=0.01)
        self.assertEqual([step for step, _ in losses], list(range(100)))
        self.assertLess(losses[-1][1], 1e-3 * losses[0][1])

    def test_a_checkpoint_goes_on_with_the_same_bits(self):
        first, second = [], []
        with tempfile.TemporaryDirectory() as folder:
            with self.session(first) as s:
                s.run(5)
                s.save(folder)
                s.run(5)
            with self.session(second) as s:
                s.load(folder)
                self.assertEqual(s.step, 5)
                s.run(5)
        self.assertEqual(first[5:], second)

    def test_what_a_source_raises_is_raised_by_the_run(self):
        def source(step, micro):
            if step == 3:
                raise KeyError("no such batch")
            return numpy.ones((8, 1), numpy.float32)
        with weir.Session(plan("train"), sources={"x": source}, sinks={"loss": lambda *_: None}) as s:
            with self.assertRaisesRegex(KeyError, "no such batch"):
                s.run(10)

    def test_a_source_that_ends_ends_the_run(self):
        def source(step, micro):
            return numpy.ones((8, 1), numpy.float32) if step < 4 else None
        with weir.Session(plan("train"), sources={"x": source}, sinks={"loss": lambda *_: None}) as s:
            with self.assertRaisesRegex(weir.Error, "has come to its end") as raised:
                s.run(10)
            self.assertEqual(raised.exception.status, "E_END")
            self.assertEqual(s.step, 4)

    def test_a_place_that_the_plan_lacks_is_named(self):
        with self.assertRaisesRegex(weir.Error, "no source \"z\""):
            weir.Session(plan("train"), sources={"z": self.source})

    def test_a_session_keeps_its_plan(self):
        losses = []
        s = self.session(losses)
        gc.collect()
        s.run(2)
        del s
        gc.collect()
        self.assertEqual(len(losses), 2)


class Structures(unittest.TestCase):
    """Sizes and offsets are those of the headers: tests/installed prints them, compiled."""

    def test_are_those_of_the_headers(self):
        with open(os.path.join(FOLDER, "sizes")) as lines:
            for line in lines:
                name, size = line.split()
                self.assertEqual(weir.ctypes.sizeof(weir.STRUCTURES[name]), int(size), name)


if __name__ == "__main__":
    unittest.main()
