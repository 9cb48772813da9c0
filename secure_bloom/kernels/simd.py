"""Vectors of integers as a numba type, so that a kernel processes several values at a time.

LLVM vectorises few of our loops automatically. A :class:`Vector` is an LLVM vector: operators work
lane by lane, the other operand may be a scalar, and the same function, such as XXH64 of a value,
handles one value (``uint64``) or many. LLVM maps it to the CPU's registers: 8 lanes of 64 bits
are one register of AVX-512, two of AVX2, four of NEON.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model
from numba.np.arrayobj import populate_array


class Vector(types.Type):
    """A vector with a fixed number of unsigned integers of one type."""

    def __init__(self, lane: types.Integer, count: int):
        self.lane, self.count = lane, count
        super().__init__(name=f"Vector({lane}, {count})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, vector_type(vector))


def vector_type(vector: Vector) -> ir.VectorType:
    """Return the LLVM type."""
    return ir.VectorType(ir.IntType(vector.lane.bitwidth), vector.count)


def constant(vector: Vector, values) -> ir.Constant:
    """Return an LLVM vector of constants."""
    lane = ir.IntType(vector.lane.bitwidth)
    return ir.Constant(vector_type(vector), [ir.Constant(lane, int(value)) for value in values])


def broadcast(builder, scalar, vector: Vector):
    """Return LLVM code for a vector with one value in all lanes."""
    undefined = ir.Constant(vector_type(vector), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    zeros = constant(Vector(types.uint32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, undefined, zeros)


def pointer_to(context, builder, array_type, array, index, target: ir.Type):
    """Return LLVM code for the address of an array element, as a pointer to another type."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), target.as_pointer())


# --- operators -----------------------------------------------------------------------------------

def _define(operation, method: str) -> None:
    """Define an operator for operands of which at least one is a vector.

    Uses numba's low-level interface, which compiles no function per pair of types.
    """
    @infer_global(operation)
    class _(AbstractTemplate):
        def generic(self, args, kws):
            for kind in args:
                if isinstance(kind, Vector):
                    return signature(kind, *args)
            return None

    def generate(context, builder, signature, args):
        vector = signature.return_type
        operands = [value if isinstance(kind, Vector) else
                    broadcast(builder, context.cast(builder, value, kind, vector.lane), vector)
                    for kind, value in zip(signature.args, args, strict=True)]
        return getattr(builder, method)(*operands)

    for kinds in ((Vector, Vector), (Vector, types.Integer), (types.Integer, Vector)):
        lower_builtin(operation, *kinds)(generate)


for _name, _method in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("and", "and_"),
                       ("or", "or_"), ("xor", "xor"), ("lshift", "shl"), ("rshift", "lshr")):
    for _operation in (f"__{_name}__", f"__i{_name}__"):  # as in a + b, a += b
        _define(getattr(operator, _operation), _method)


@intrinsic
def rotate_left(typing_context, value, bits):
    """Rotate a ``uint64``, or each lane, left by this number of bits.

    With two shifts and an "or", LLVM sees a shift of a product, which it turns into a second
    product.
    """
    def generate(context, builder, signature, args):
        kind, name = context.get_value_type(value), "llvm.fshl.i64"
        distance = context.cast(builder, args[1], bits, types.uint64)
        if isinstance(value, Vector):
            distance, name = broadcast(builder, distance, value), f"llvm.fshl.v{value.count}i64"
        rotate = get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(rotate, [args[0], args[0], distance])
    return value(value, bits), generate


# --- memory --------------------------------------------------------------------------------------

def loader(count: int):
    """Return a function that loads ``count`` elements of a uint32 or uint64 array as uint64."""
    vector = Vector(types.uint64, count)

    @intrinsic
    def load(typing_context, array, index):
        def generate(context, builder, signature, args):
            source = ir.VectorType(ir.IntType(array.dtype.bitwidth), vector.count)
            value = builder.load(pointer_to(context, builder, array, *args, source), align=1)
            return value if array.dtype == vector.lane else \
                builder.zext(value, vector_type(vector))
        return vector(array, types.uint64), generate
    return load


def arange(count: int):
    """Return a function that returns the vector 0, step, 2 step, ... of a ``uint64``."""
    vector = Vector(types.uint64, count)

    @intrinsic
    def multiply(typing_context, step):
        def generate(context, builder, signature, args):
            return builder.mul(broadcast(builder, args[0], vector), constant(vector, range(count)))
        return vector(types.uint64), generate
    return multiply


@intrinsic
def store(typing_context, array, index, value):
    """Write a vector of uint64 to a uint64 array, from ``index`` on."""
    def generate(context, builder, signature, args):
        pointer = pointer_to(context, builder, array, args[0], args[1], vector_type(value))
        builder.store(args[2], pointer, align=1)
        return context.get_dummy_value()
    return types.void(array, types.uint64, value), generate


def _gather(builder, word, addresses, count: int):
    result, flags = ir.VectorType(word, count), ir.VectorType(ir.IntType(1), count)
    pointers = ir.VectorType(word.as_pointer(), count)
    gather = get_or_insert_function(
        builder.module,
        ir.FunctionType(result, [pointers, ir.IntType(32), flags, result]),
        f"llvm.masked.gather.v{count}i{word.width}.v{count}p0")
    return builder.call(gather, [
        builder.inttoptr(addresses, pointers), ir.Constant(ir.IntType(32), 1),
        ir.Constant(flags, [1] * count), ir.Constant(result, ir.Undefined)])


def _reader(bits: int):
    """Return a function that reads a little-endian unsigned integer from a uint8 array.

    The position is arbitrary; with a vector of positions it reads one integer per lane.
    """
    word = ir.IntType(bits)

    @intrinsic
    def read(typing_context, data, position):
        def generate(context, builder, signature, args):
            address = builder.ptrtoint(
                context.make_array(data)(context, builder, args[0]).data, ir.IntType(64))
            if isinstance(position, Vector):
                addresses = builder.add(broadcast(builder, address, position), args[1])
                value = _gather(builder, word, addresses, position.count)
            else:
                pointer = builder.inttoptr(builder.add(address, args[1]), word.as_pointer())
                value = builder.load(pointer, align=1)
            return value if bits == 64 else \
                builder.zext(value, context.get_value_type(signature.return_type))
        result = position if isinstance(position, Vector) else types.uint64
        return result(data, position), generate
    return read


read8, read4, read1 = _reader(64), _reader(32), _reader(8)


@intrinsic
def write8(typing_context, data, position, value):
    """Write a ``uint64``, little-endian, to a uint8 array at any position."""
    def generate(context, builder, signature, args):
        address = pointer_to(context, builder, data, args[0], args[1], ir.IntType(64))
        builder.store(args[2], address, align=1)
        return context.get_dummy_value()
    return types.void(data, types.uint64, types.uint64), generate


def stack_array(item: types.Integer, count: int):
    """Return a function that returns an uninitialised array of ``count`` elements on the stack.

    Kernels allocate no other memory, so their machine code needs no runtime of numba. Call the
    function in the kernel itself, since its memory ends with the function that calls it.
    """
    array_type = types.Array(item, 1, "C")

    @intrinsic
    def allocate(typing_context):
        def generate(context, builder, signature, args):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(context.get_data_type(item), count))
            memory.align = 64  # a cache line
            return array_at(context, builder, array_type, memory, [ir.IntType(64)(count)])
        return array_type(), generate
    return allocate


@intrinsic
def numbers_at(typing_context, address, count):
    """Return an array of uint64 over memory at an address."""
    array_type = types.Array(types.uint64, 1, "C")

    def generate(context, builder, signature, args):
        memory = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return array_at(context, builder, array_type, memory, [args[1]])
    return array_type(types.uint64, types.uint64), generate


def array_at(context, builder, array_type, address, shape: list):
    """Return LLVM code for an array of numba over memory that something else owns."""
    number, item = ir.IntType(64), getattr(array_type.dtype, "bitwidth", 8) // 8  # no width: bool
    strides = [number(item)]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    array = context.make_array(array_type)(context, builder)
    populate_array(array, data=builder.bitcast(address, array.data.type), shape=shape,
                   strides=strides, itemsize=number(item), meminfo=None)
    return array._getvalue()


@intrinsic
def prefetch(typing_context, array, index):
    """Prefetch the cache line of an element; the element need not exist.

    The line goes to the second-level cache, which allows more outstanding lines than the first.
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
