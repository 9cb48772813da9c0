"""Vectors of 8 integers as a numba type, so that a kernel works 8 values at a time.

LLVM vectorises few of our loops by itself. A :class:`Lanes` is an LLVM vector: operators work lane
by lane, the other operand may be a scalar, and the same function, such as XXH64 of a value, serves
one value (``uint64``) and eight (``UINT64S``). LLVM makes of it what the CPU has: one AVX-512
register, two of AVX2, four of NEON.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

COUNT = 8  #: lanes of a vector


class Lanes(types.Type):
    """A vector of :data:`COUNT` unsigned integers of one type."""

    def __init__(self, lane: types.Integer):
        self.lane = lane
        super().__init__(name=f"Lanes({lane})")


UINT64S = Lanes(types.uint64)
UINT32S = Lanes(types.uint32)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, vector_type(lanes))


def vector_type(lanes: Lanes) -> ir.VectorType:
    """The LLVM type."""
    return ir.VectorType(ir.IntType(lanes.lane.bitwidth), COUNT)


def constant(lanes: Lanes, values) -> ir.Constant:
    """An LLVM vector of constants."""
    lane = ir.IntType(lanes.lane.bitwidth)
    return ir.Constant(vector_type(lanes), [ir.Constant(lane, int(value)) for value in values])


def spread(builder, scalar, lanes: Lanes):
    """LLVM code for a vector with one value in all lanes."""
    undefined = ir.Constant(vector_type(lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, constant(UINT32S, [0] * COUNT))


def pointer_to(context, builder, array_type, array, index, target: ir.Type):
    """LLVM code for the address of an array's element, as a pointer to another type."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


# --- operators -----------------------------------------------------------------------------------

def _define(operation, method: str) -> None:
    """Give an operator a meaning where at least one operand is a vector."""
    @intrinsic
    def apply(typing_context, left, right):
        lanes = left if isinstance(left, Lanes) else right

        def generate(context, builder, signature, args):
            operands = [value if isinstance(kind, Lanes) else
                        spread(builder, context.cast(builder, value, kind, lanes.lane), lanes)
                        for kind, value in zip(signature.args, args, strict=True)]
            return getattr(builder, method)(*operands)
        return lanes(left, right), generate

    @overload(operation)
    def choose(left, right):
        if isinstance(left, Lanes) or isinstance(right, Lanes):
            return lambda left, right: apply(left, right)
        return None


for _name, _method in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("and", "and_"),
                       ("or", "or_"), ("xor", "xor"), ("lshift", "shl"), ("rshift", "lshr")):
    for _operation in (f"__{_name}__", f"__i{_name}__"):  # as in a + b, a += b
        _define(getattr(operator, _operation), _method)


@intrinsic
def rotate_left(typing_context, value, bits):
    """Rotate a ``uint64``, or each lane, left by so many bits.

    With two shifts and an "or" LLVM sees a shift of a product, which it makes a second product.
    """
    def generate(context, builder, signature, args):
        kind, name = context.get_value_type(value), "llvm.fshl.i64"
        distance = context.cast(builder, args[1], bits, types.uint64)
        if isinstance(value, Lanes):
            distance, name = spread(builder, distance, value), f"llvm.fshl.v{COUNT}i64"
        rotate = get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(rotate, [args[0], args[0], distance])
    return value(value, bits), generate


# --- memory --------------------------------------------------------------------------------------

@intrinsic
def load_lanes(typing_context, array, index):
    """The elements from ``index`` on of a uint32 or uint64 array, as ``UINT64S``."""
    def generate(context, builder, signature, args):
        source = ir.VectorType(ir.IntType(array.dtype.bitwidth), COUNT)
        pointer = pointer_to(context, builder, array, *args, source)
        value = builder.load(pointer, align=1)
        return value if array.dtype == types.uint64 else \
            builder.zext(value, vector_type(UINT64S))
    return UINT64S(array, types.uint64), generate


@intrinsic
def store_lanes(typing_context, array, index, value):
    """Write ``UINT64S`` to a uint64 array, from ``index`` on."""
    def generate(context, builder, signature, args):
        pointer = pointer_to(context, builder, array, args[0], args[1], vector_type(UINT64S))
        builder.store(args[2], pointer, align=1)
        return context.get_dummy_value()
    return types.void(array, types.uint64, UINT64S), generate


def _gather(builder, word, addresses):
    result, flags = ir.VectorType(word, COUNT), ir.VectorType(ir.IntType(1), COUNT)
    pointers = ir.VectorType(word.as_pointer(), COUNT)
    gather = get_or_insert_function(
        builder.module,
        ir.FunctionType(result, [pointers, ir.IntType(32), flags, result]),
        f"llvm.masked.gather.v{COUNT}i{word.width}.v{COUNT}p0")
    return builder.call(gather, [
        builder.inttoptr(addresses, pointers), ir.Constant(ir.IntType(32), 1),
        ir.Constant(flags, [1] * COUNT), ir.Constant(result, ir.Undefined)])


def _reader(bits: int):
    """A function that reads an unsigned integer at any position of a uint8 array, little-endian.

    With ``UINT64S`` as position it reads one for each lane.
    """
    word = ir.IntType(bits)

    @intrinsic
    def read(typing_context, data, position):
        def generate(context, builder, signature, args):
            array, positions = args
            if not isinstance(position, Lanes):
                return _load(context, builder, data, array, positions)
            base = builder.ptrtoint(
                context.make_array(data)(context, builder, array).data, ir.IntType(64))
            addresses = builder.add(spread(builder, base, UINT64S), positions)
            value = _gather(builder, word, addresses)
            return value if bits == 64 else builder.zext(value, vector_type(UINT64S))
        return (position if isinstance(position, Lanes) else types.uint64)(data, position), generate

    def _load(context, builder, data, array, position):
        pointer = pointer_to(context, builder, data, array, position, word)
        value = builder.load(pointer, align=1)
        return value if bits == 64 else builder.zext(value, ir.IntType(64))
    return read


read8, read4, read1 = _reader(64), _reader(32), _reader(8)


@intrinsic
def prefetch(typing_context, array, index):
    """Have the cache line of an element fetched; the element need not exist.

    Into the second-level cache: more lines can be on their way there than to the first.
    """
    def generate(context, builder, signature, args):
        byte, number = ir.IntType(8), ir.IntType(32)
        fetch = get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte.as_pointer()] + [number] * 3),
            "llvm.prefetch.p0")
        read, second_level, data = (ir.Constant(number, i) for i in (0, 2, 1))
        builder.call(fetch, [pointer_to(context, builder, array, *args, byte),
                             read, second_level, data])
        return context.get_dummy_value()
    return types.void(array, types.uint64), generate
