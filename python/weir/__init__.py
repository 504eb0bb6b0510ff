"""weir from Python: plans are loaded and run; models are written in C.

    import numpy, weir
    plan = weir.Plan("gpt.plan")
    print(plan.inputs, plan.outputs, plan.parameters)
    with weir.Session(plan, sources={"tokens": lambda step, micro: batch(step)}) as session:
        session.load("runs/a")
        session.run(100)
        weight = session.read("h0/q/weight")        # a numpy.ndarray of one's own
        session.write("h0/q/weight", 0.5 * weight)

Values go in as anything that NumPy takes: arrays, numbers, what has __dlpack__ (a tensor of PyTorch on the CPU) or
__array__. They come out as numpy.ndarray, which torch.from_dlpack() and others take without a copy. An f16 is
numpy.float16; NumPy has no bf16, so it is numpy.float32 here, exactly, and rounded to the nearest on its way in.

The module is ctypes alone: it needs NumPy and the shared library. That is looked for as $WEIR_LIBRARY, an absolute path;
then in the lib folder that the module is installed in; then as the system finds libweir.so.1, but never in the current
directory. Calls that wait let other threads of Python run. Sources and sinks are called by weir's
threads, one at a time for each; what they raise ends the run, and is raised again by the call that waited for it.
A failing call raises weir.Error, with .status ("E_ARGUMENT") and weir's own sentence.
"""

import ctypes
import os
import re
import sysconfig
from ctypes import (POINTER, Structure, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p,
                    cast)

import numpy

__all__ = ["Error", "Plan", "Place", "Parameter", "Session", "version"]


# ---- the library: what <weir/base.h>, <weir/plan.h> and <weir/session.h> declare ----

DIMS_MAX = 6
_OK, _END, _E_KERNEL = 0, 1, 9
_DTYPES = {1: numpy.float32, 2: numpy.int32, 3: numpy.uint8, 4: numpy.float16, 5: numpy.float32,
           6: numpy.int64, 7: numpy.int8}
_BF16 = 5


class _Src(Structure):
    _fields_ = [("file", c_char_p), ("line", c_int)]


class _Shape(Structure):
    _fields_ = [("rank", c_int), ("dim", c_int64 * DIMS_MAX)]


class _Type(Structure):
    _fields_ = [("dtype", c_int), ("shape", _Shape)]


class _Array(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("shape", _Shape)]


class _View(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("shape", _Shape), ("offset", c_int64 * DIMS_MAX),
                ("whole", _Shape), ("length", c_void_p)]


class _HostInfo(Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("type", _Type), ("per_step", c_int), ("program", c_char_p)]


class _ParamInfo(Structure):
    _fields_ = [("name", c_char_p), ("type", _Type), ("kind", c_int), ("frozen", c_bool)]


_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(_View), c_int64, c_int)


class _Binding(Structure):
    _fields_ = [("name", c_char_p), ("source", _CALLBACK), ("sink", _CALLBACK), ("call", c_void_p), ("ctx", c_void_p),
                ("save", c_void_p), ("restore", c_void_p), ("open", c_void_p), ("close", c_void_p)]


class _ClusterOpts(Structure):
    _fields_ = [("world_size", c_int), ("rank", c_int), ("address", c_char_p), ("name", c_char_p), ("alone", c_bool)]


class _Opts(Structure):
    """Options: what begins with its own size and a place in the program."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(self), src=_Src(b"python", 0), **members)


class _SessionOpts(_Opts):
    _fields_ = [("size", c_size_t), ("src", _Src), ("binding_size", c_size_t), ("workers", c_int),
                ("workers_of", c_void_p), ("pin", c_bool), ("poison", c_bool), ("check_finite", c_bool),
                ("offload", c_char_p), ("trace", c_char_p), ("trace_events", c_int64),
                ("bindings", POINTER(_Binding)), ("first_step", c_int64), ("cluster", _ClusterOpts),
                ("stall_s", c_double), ("report", c_void_p), ("report_ctx", c_void_p), ("spin", c_char_p),
                ("weights", c_char_p)]


class _RunOpts(_Opts):
    _fields_ = [("size", c_size_t), ("src", _Src), ("steps", c_int64), ("program", c_char_p), ("first_step", c_int64)]


class _SaveOpts(_Opts):
    _fields_ = [("size", c_size_t), ("src", _Src), ("name", c_char_p), ("is_async", c_bool), ("memory", c_bool),
                ("keep", c_int), ("program", c_char_p)]


class _LoadOpts(_Opts):
    _fields_ = [("size", c_size_t), ("src", _Src), ("parameters", c_bool), ("partial", c_bool), ("memory", c_char_p)]


# By their names in C, for the test that compares them with the headers.
STRUCTURES = {"weir_src": _Src, "weir_shape": _Shape, "weir_type": _Type, "weir_array": _Array, "weir_view": _View,
              "weir_host_info": _HostInfo, "weir_param_info": _ParamInfo, "weir_binding": _Binding,
              "weir_cluster_opts": _ClusterOpts, "weir_session_opts": _SessionOpts, "weir_run_opts": _RunOpts,
              "weir_save_opts": _SaveOpts, "weir_load_opts": _LoadOpts}

_VERSION = (0, 1)  # whose structures these are


def _find_library(name):
    """An absolute path, or the name where the loader looks for it in absolute folders alone."""
    told = os.environ.get("WEIR_LIBRARY")
    if told:
        if not os.path.isabs(told):
            raise ImportError("weir: WEIR_LIBRARY is '%s', which is no absolute path" % told)
        return told
    lib, multiarch = os.path.realpath(__file__), sysconfig.get_config_var("MULTIARCH") or ""
    for _ in range(4):  # lib/python3/dist-packages/weir/__init__.py
        lib = os.path.dirname(lib)
    folders = [lib, os.path.join(lib, multiarch)] if os.path.basename(lib) == "lib" else []
    searched = os.environ.get("LD_LIBRARY_PATH")
    searched = re.split("[:;]", searched) if searched else []
    safe = all(map(os.path.isabs, searched))  # an empty entry is the current directory to the loader
    if not safe:
        folders += filter(os.path.isabs, searched)
        folders += ["/usr/local/lib", os.path.join("/usr/lib", multiarch), "/usr/lib"]
    for folder in folders:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    if not safe:
        raise ImportError("weir: there is no %s; LD_LIBRARY_PATH has an empty or relative entry, which weir skips, and with "
                          "it ld.so.cache: remove that entry" % name)
    return name


def _open_library():
    library = ctypes.CDLL(_find_library("libweir.so.1"))

    def declare(name, result, *arguments):
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)

    declare("weir_version", c_char_p)
    declare("weir_error", c_char_p)
    declare("weir_status_name", c_char_p, c_int)
    declare("weir_to_f32", None, c_int, c_void_p, c_int64, c_void_p)
    declare("weir_from_f32", None, c_void_p, c_int64, c_int, c_void_p)
    declare("weir_plan_load", c_void_p, c_char_p)
    declare("weir_plan_free", None, c_void_p)
    declare("weir_plan_check", c_int, c_void_p)
    declare("weir_plan_bytes", c_uint64, c_void_p, c_int)
    declare("weir_plan_micro_batches", c_int, c_void_p)
    declare("weir_plan_host_count", c_int, c_void_p)
    declare("weir_plan_host", c_int, c_void_p, c_int, POINTER(_HostInfo))
    declare("weir_plan_param_count", c_int, c_void_p)
    declare("weir_plan_param", c_int, c_void_p, c_int, POINTER(_ParamInfo))
    declare("weir_session_open_at", c_void_p, c_void_p, POINTER(_SessionOpts))
    declare("weir_session_close", c_int, c_void_p)
    declare("weir_session_start_at", c_int, c_void_p, POINTER(_RunOpts))
    declare("weir_session_wait", c_int, c_void_p, c_int)
    declare("weir_session_stop", None, c_void_p)
    declare("weir_session_cancel", c_int, c_void_p)
    declare("weir_session_push", c_int, c_void_p, c_char_p, POINTER(_Array), c_int)
    declare("weir_session_pull", c_int, c_void_p, c_char_p, POINTER(_Array), c_int)
    declare("weir_session_step", c_int64, c_void_p)
    declare("weir_session_read", c_int, c_void_p, c_char_p, POINTER(_Array))
    declare("weir_session_write", c_int, c_void_p, c_char_p, POINTER(_Array))
    declare("weir_session_save_at", c_int, c_void_p, c_char_p, POINTER(_SaveOpts))
    declare("weir_session_load_at", c_int, c_void_p, c_char_p, POINTER(_LoadOpts))
    found = tuple(int(part) for part in library.weir_version().decode().split(".")[:2])
    if found != _VERSION:
        raise ImportError("weir: this module is for libweir %d.%d, and found %d.%d" % (*_VERSION, *found))
    return library


_library = _open_library()


def version():
    """The library's version, as "0.1.0"."""
    return _library.weir_version().decode()


class Error(Exception):
    """The error of a call that failed. `status` is its name, as "E_ARGUMENT"."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def _failed(status=None):
    name = _library.weir_status_name(status).decode() if status else "E_ARGUMENT"
    return Error(name, _library.weir_error().decode(errors="replace"))


def _check(status):
    if status != _OK:
        raise _failed(status)


# ---- values ----


def _shape_of(shape):
    return tuple(shape.dim[:shape.rank])


def _to_shape(dims):
    return _Shape(len(dims), (c_int64 * DIMS_MAX)(*dims))


def _given(value, dtype, shape, what):
    """`value` as a contiguous array of what is expected; a copy only where it is something else."""
    if hasattr(value, "__dlpack__") and not isinstance(value, numpy.ndarray):
        value = numpy.from_dlpack(value)
    array = numpy.asarray(value)
    wanted = numpy.dtype(_DTYPES[dtype])
    if array.dtype != wanted and not numpy.can_cast(array.dtype, wanted, "same_kind"):
        raise Error("E_ARGUMENT", "%s takes %s, not %s" % (what, wanted, array.dtype))
    if tuple(array.shape) != tuple(shape):
        raise Error("E_ARGUMENT", "%s has the shape %s, not %s" % (what, tuple(shape), tuple(array.shape)))
    array = numpy.ascontiguousarray(array, dtype=wanted).reshape(shape)
    if dtype != _BF16:
        return array
    half = numpy.empty(shape, numpy.uint16)
    _library.weir_from_f32(array.ctypes.data, array.size, _BF16, half.ctypes.data)
    return half


def _taken(raw, dtype):
    """The content of `raw`, of weir's dtype, as a value."""
    if dtype != _BF16:
        return raw
    value = numpy.empty(raw.shape, numpy.float32)
    _library.weir_to_f32(_BF16, raw.ctypes.data, raw.size, value.ctypes.data)
    return value


def _room(dtype, shape):
    return numpy.empty(shape, numpy.uint16 if dtype == _BF16 else _DTYPES[dtype])


def _array_of(raw, dtype):
    return _Array(raw.ctypes.data, dtype, _to_shape(raw.shape))


def _in_view(view):
    """The memory of a view, as an array."""
    dtype, shape = view.dtype, _shape_of(view.shape)
    raw = numpy.dtype(numpy.uint16 if dtype == _BF16 else _DTYPES[dtype])
    count = int(numpy.prod(shape, dtype=numpy.int64))
    if not count:
        return numpy.empty(shape, raw)
    bytes_ = (ctypes.c_char * (count * raw.itemsize)).from_address(view.data)
    return numpy.frombuffer(bytes_, dtype=raw).reshape(shape)


def _shard_of(view):
    """Where a view lies in its whole tensor: of a source that is split over devices, each gives its own shard."""
    return tuple(slice(view.offset[d], view.offset[d] + n) for d, n in enumerate(_shape_of(view.shape)))


# ---- plans ----


class Place:
    """Where a plan takes values, or gives them: .name, .kind ("source", "sink", "call", "push" or "pull"), .dtype and
    .shape of a value, .per_step (values in a step) and .program."""

    KINDS = ("source", "sink", "call", "push", "pull")

    def __init__(self, info):
        self.name, self.kind = info.name.decode(), Place.KINDS[info.kind]
        self.dtype, self.shape = numpy.dtype(_DTYPES[info.type.dtype]), _shape_of(info.type.shape)
        self.per_step, self.program = info.per_step, info.program.decode()
        self._dtype = info.type.dtype

    def __repr__(self):
        return "<%s %s %s%s>" % (self.kind, self.name, self.dtype, list(self.shape))


class Parameter:
    """A value that lives from step to step: .name, .kind ("parameter", "optimizer state" or "state"), .dtype, .shape and
    .frozen."""

    KINDS = ("parameter", "optimizer state", "state")

    def __init__(self, info):
        self.name, self.kind, self.frozen = info.name.decode(), Parameter.KINDS[info.kind], info.frozen
        self.dtype, self.shape = numpy.dtype(_DTYPES[info.type.dtype]), _shape_of(info.type.shape)
        self._dtype = info.type.dtype

    def __repr__(self):
        return "<%s %s %s%s>" % (self.kind, self.name, self.dtype, list(self.shape))


class Plan:
    """A plan that weir_plan_save() or `weir-gpt --plan` wrote; Error when it is none. Lives as long as a session of
    it does. .inputs, .outputs and .calls are Places by name, .parameters Parameters by name."""

    def __init__(self, path):
        self._plan = _library.weir_plan_load(os.fsencode(path))
        if not self._plan:
            raise _failed()
        self._as_parameter_ = c_void_p(self._plan)
        places = [self._place(i) for i in range(_library.weir_plan_host_count(self))]
        self.inputs = {p.name: p for p in places if p.kind in ("source", "push")}
        self.outputs = {p.name: p for p in places if p.kind in ("sink", "pull")}
        self.calls = {p.name: p for p in places if p.kind == "call"}
        parameters = [self._parameter(i) for i in range(_library.weir_plan_param_count(self))]
        self.parameters = {p.name: p for p in parameters}

    def __del__(self):
        if getattr(self, "_plan", None):
            _library.weir_plan_free(self._plan)
            self._plan = None

    def _place(self, i):
        info = _HostInfo()
        _check(_library.weir_plan_host(self, i, byref(info)))
        return Place(info)

    def _parameter(self, i):
        info = _ParamInfo()
        _check(_library.weir_plan_param(self, i, byref(info)))
        return Parameter(info)

    @property
    def micro_batches(self):
        """Micro-batches in a step."""
        return _library.weir_plan_micro_batches(self)

    def bytes(self, device=-1):
        """Planned bytes: of one device, or of all."""
        return _library.weir_plan_bytes(self, device)

    def check(self):
        """Proves that the plan cannot deadlock; Error otherwise."""
        _check(_library.weir_plan_check(self))


# ---- sessions ----


class Session:
    """Runs a plan.

    sources   by name: a function of (step, micro) that gives the value, or None when there are no more; it is called once for
              each device of a source that is split, of which each takes its shard
    sinks     by name: a function of (value, step, micro)
    calls are bound by what the plan's program registered in C; a plan that has any cannot be opened here.
    workers, pin, poison, check_finite, trace, first_step, weights: as in <weir/session.h>; workers_of: another Session; alone:
    whatever the environment says of ranks.
    """

    def __init__(self, plan, sources=None, sinks=None, workers=0, pin=False, poison=False, trace=None, first_step=0,
                 alone=False, check_finite=False, workers_of=None, weights=None):
        self.plan = plan
        self._session = None
        self._raised = None
        self._kept = []
        bindings = self._bind(sources or {}, sinks or {})
        options = _SessionOpts(binding_size=ctypes.sizeof(_Binding), workers=workers, pin=pin, poison=poison,
                               workers_of=workers_of._self() if workers_of else None, check_finite=check_finite,
                               trace=os.fsencode(trace) if trace else None, bindings=bindings, first_step=first_step,
                               weights=os.fsencode(weights) if weights else None, cluster=_ClusterOpts(alone=alone))
        self._session = _library.weir_session_open_at(plan, byref(options))
        if not self._session:
            raise _failed()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_session", None):
            self.close()

    # ---- sources and sinks

    def _bind(self, sources, sinks):
        places = [(name, function, True) for name, function in sources.items()]
        places += [(name, function, False) for name, function in sinks.items()]
        bindings = (_Binding * (len(places) + 1))()
        for i, (name, function, is_source) in enumerate(places):
            known = (self.plan.inputs if is_source else self.plan.outputs).get(name)
            if not known or known.kind != ("source" if is_source else "sink"):
                raise Error("E_ARGUMENT", "the plan has no %s \"%s\"" % ("source" if is_source else "sink", name))
            bindings[i].name = name.encode()
            called = _CALLBACK(self._source(known, function) if is_source else self._sink(known, function))
            self._kept.append(called)
            if is_source:
                bindings[i].source = called
            else:
                bindings[i].sink = called
        self._kept.append(bindings)
        return bindings

    def _guarded(self, function):
        try:
            return function()
        except BaseException as raised:  # it must not be lost in weir's thread
            self._raised = self._raised or raised
            return _E_KERNEL

    def _source(self, place, function):
        def called(_, view, step, micro):
            def fill():
                value = function(step, micro)
                if value is None:
                    return _END
                whole = _given(value, place._dtype, place.shape, "source \"%s\"" % place.name)
                _in_view(view[0])[...] = whole[_shard_of(view[0])]
                return _OK
            return self._guarded(fill)
        return called

    def _sink(self, place, function):
        def called(_, view, step, micro):
            def take():
                function(_taken(_in_view(view[0]).copy(), place._dtype), step, micro)
                return _OK
            return self._guarded(take)
        return called

    # ---- running

    def _self(self):
        if not self._session:
            raise Error("E_STATE", "the session is closed")
        return self._session

    def _checked(self, status):
        raised, self._raised = (self._raised, None) if status != _OK else (None, self._raised)
        if raised:
            raise raised
        _check(status)

    def start(self, steps, program="main", first_step=0):
        """Begins so many steps of a program, and returns."""
        options = _RunOpts(steps=steps, program=program.encode(), first_step=first_step)
        self._checked(_library.weir_session_start_at(self._self(), byref(options)))

    def wait(self, timeout_ms=-1):
        """Until they are over. Now and then Python looks whether it was interrupted: then the run is stopped."""
        left = timeout_ms
        while True:
            turn = 100 if left < 0 else min(left, 100)
            status = _library.weir_session_wait(self._self(), turn)
            if status != 7 or turn == left:  # E_TIMEOUT
                self._checked(status)
                return
            left -= turn if left > 0 else 0

    def run(self, steps, program="main", first_step=0):
        """start() and wait(). On KeyboardInterrupt the run ends after the step, and it is raised then."""
        self.start(steps, program, first_step)
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            self.wait()
            raise

    def stop(self):
        """Ends the run under way after a step."""
        _library.weir_session_stop(self._self())

    def cancel(self):
        """Ends the session at once."""
        _check(_library.weir_session_cancel(self._self()))

    def close(self):
        """Stops everything. May be called again."""
        session, self._session = self._session, None
        if session:
            _check(_library.weir_session_close(session))

    @property
    def step(self):
        """The number of the next step."""
        return _library.weir_session_step(self._self())

    # ---- values

    def _find(self, table, name, what):
        if name not in table:
            raise Error("E_ARGUMENT", "the plan has no %s \"%s\"; it has: %s" % (what, name, ", ".join(table)))
        return table[name]

    def push(self, name, value, timeout_ms=-1):
        """Gives the input `name` its next value."""
        place = self._find(self.plan.inputs, name, "input")
        raw = _given(value, place._dtype, place.shape, "input \"%s\"" % name)
        self._checked(_library.weir_session_push(self._self(), name.encode(), byref(_array_of(raw, place._dtype)),
                                                 timeout_ms))

    def pull(self, name, timeout_ms=-1):
        """The next value of the output `name`."""
        place = self._find(self.plan.outputs, name, "output")
        raw = _room(place._dtype, place.shape)
        self._checked(_library.weir_session_pull(self._self(), name.encode(), byref(_array_of(raw, place._dtype)),
                                                 timeout_ms))
        return _taken(raw, place._dtype)

    def read(self, name):
        """The value of a parameter or state, put together from all devices."""
        parameter = self._find(self.plan.parameters, name, "parameter")
        raw = _room(parameter._dtype, parameter.shape)
        self._checked(_library.weir_session_read(self._self(), name.encode(), byref(_array_of(raw, parameter._dtype))))
        return _taken(raw, parameter._dtype)

    def write(self, name, value):
        """Sets a parameter or state on all devices."""
        parameter = self._find(self.plan.parameters, name, "parameter")
        raw = _given(value, parameter._dtype, parameter.shape, "parameter \"%s\"" % name)
        self._checked(_library.weir_session_write(self._self(), name.encode(),
                                                  byref(_array_of(raw, parameter._dtype))))

    def save(self, directory, name=None, keep=0):
        """Saves a checkpoint into a folder, and waits until it is on the disk."""
        options = _SaveOpts(name=name.encode() if name else None, keep=keep)
        _check(_library.weir_session_save_at(self._self(), os.fsencode(directory), byref(options)))

    def load(self, path, parameters=False, partial=False):
        """Loads a checkpoint, the newest of a folder of them, or a .safetensors or .gguf file."""
        options = _LoadOpts(parameters=parameters, partial=partial)
        _check(_library.weir_session_load_at(self._self(), os.fsencode(path), byref(options)))
