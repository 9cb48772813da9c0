"""Leaf arrays of nested Arrow arrays, and nested arrays with replaced leaves.

Below lists with nulls, Arrow concatenates the entries of the valid lists. It cannot do so for every
leaf: extension types may fail, and half floats in dictionaries turn into other numbers. Leaves are
therefore converted to plain types first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the leaf arrays below an array, depth first, as Parquet orders its leaf columns.

    Values under a null parent are null or omitted. Extension types are replaced by their storage.
    """
    dictionaries: list[tuple[pa.Array, bool] | None] = []

    def plain(leaf: pa.Array) -> pa.Array:
        is_dictionary = pa.types.is_dictionary(leaf.type)
        dictionaries.append((leaf.dictionary, leaf.type.ordered) if is_dictionary else None)
        return leaf.indices if is_dictionary else leaf

    leaves = list(_flattened(with_leaves(array, plain)))
    for leaf, dictionary in zip(leaves, dictionaries, strict=True):
        yield leaf if dictionary is None else \
            pa.DictionaryArray.from_arrays(leaf, dictionary[0], ordered=dictionary[1], safe=False)


def leaf_types(t: pa.DataType) -> list[pa.DataType]:
    """Return the types of this type's leaf columns, in the order of leaf arrays."""
    if isinstance(t, pa.BaseExtensionType):
        leaves = leaf_types(t.storage_type)
        return [t] if leaves == [t.storage_type] else leaves
    return [leaf for child in _children(t) for leaf in leaf_types(child)] if is_nested(t) else [t]


def has_dictionary(t: pa.DataType) -> bool:
    """Whether there are dictionaries at any depth."""
    return contains(t, pa.types.is_dictionary)


def has_scale(schema: pa.Schema) -> bool:
    """Whether a column has ordered dictionaries at any depth."""
    return any(contains(t, lambda one: pa.types.is_dictionary(one) and one.ordered)
               for t in schema.types)


def is_list(t: pa.DataType) -> bool:
    """Whether this is one of Arrow's list types."""
    return (pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)
            or pa.types.is_list_view(t) or pa.types.is_large_list_view(t))


def with_leaf_types(t: pa.DataType, replace: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with replaced leaf types; an extension type counts as a leaf."""
    if not is_nested(t):
        return replace(t)
    return _with_children(t, [with_leaf_types(child, replace) for child in _children(t)])


def with_leaves(array: pa.Array, replace: Callable[[pa.Array], pa.Array],
                concerns: Callable[[pa.DataType], bool] = lambda t: True, *,
                keep_extensions: bool = False) -> pa.Array:
    """Return the same nesting over other leaves of the same lengths.

    Extension types are replaced by their storage, unless ``keep_extensions``: then the leaves must
    keep their types. Parts that are not affected, as determined by their type, are returned
    unchanged.
    """
    t = array.type
    if not concerns(t):
        return array
    inner = partial(with_leaves, replace=replace, concerns=concerns,
                    keep_extensions=keep_extensions)
    if isinstance(t, pa.BaseExtensionType):
        storage = inner(array.storage)
        return pa.ExtensionArray.from_storage(t, storage) if keep_extensions else storage
    if not is_nested(t):
        return replace(array)
    is_struct = pa.types.is_struct(t)
    children = list(map(inner, map(array.field, range(t.num_fields)) if is_struct
                        else [array.values]))
    new = _with_children(t, [child.type for child in children])
    if is_struct and array.offset:  # the fields do not include the offset
        return pa.StructArray.from_arrays(children, fields=list(new),
                                          mask=array.is_null() if array.null_count else None)
    return pa.Array.from_buffers(new, len(array), array.buffers()[:t.num_buffers],
                                 offset=array.offset, children=children)


def is_nested(t: pa.DataType) -> bool:
    """Whether a type is a struct, a map or a list of any kind; extension types are not."""
    return pa.types.is_nested(t) and (pa.types.is_struct(t) or pa.types.is_map(t) or is_list(t))


def _children(t: pa.DataType) -> list[pa.DataType]:
    """Return the types of a struct's fields, a list's values or a map's entries."""
    return [t.field(i).type for i in range(t.num_fields)]


def _with_children(t: pa.DataType, children: list[pa.DataType]) -> pa.DataType:
    """Return the same kind of nested type, with the same names, over other types."""
    return with_fields(t, [t.field(i).with_type(child) for i, child in enumerate(children)])


def with_fields(t: pa.DataType, fields: list[pa.Field]) -> pa.DataType:
    """Return the same kind of nested type over other fields."""
    if pa.types.is_map(t):
        entries = fields[0].type
        return pa.map_(entries.field(0), entries.field(1), keys_sorted=t.keys_sorted)
    if pa.types.is_struct(t):
        return pa.struct(fields)
    if pa.types.is_fixed_size_list(t):
        return pa.list_(fields[0], t.list_size)
    make = {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view,
            "large_list_view": pa.large_list_view}
    return make[str(t).partition("<")[0]](fields[0])


def replaced_dictionaries(
        array: pa.Array, replace: Callable[[pa.DictionaryArray], pa.DictionaryArray]) -> pa.Array:
    """Return the array with other dictionary arrays of the same types and lengths.

    They are passed in the order of :func:`leaf_arrays`, with values that no row has.
    """
    return with_leaves(array, lambda leaf: replace(leaf) if pa.types.is_dictionary(leaf.type)
                        else leaf, has_dictionary, keep_extensions=True)


def _flattened(array: pa.Array) -> Iterator[pa.Array]:
    t = array.type
    if pa.types.is_map(t):  # Arrow flattens lists only
        yield from _flattened(pa.Array.from_buffers(
            pa.list_(t.field(0)), len(array), array.buffers()[:t.num_buffers],
            offset=array.offset, children=[array.values]))
    elif pa.types.is_struct(t):
        for child in array.flatten():
            yield from _flattened(child)
    elif is_list(t):
        yield from _flattened(array.flatten())
    else:
        yield array


# --- dictionaries in lists -----------------------------------------------------------------------

def without_dictionaries_in_lists(schema: pa.Schema) -> pa.Schema:
    """Return the schema with values in the place of the dictionaries in lists and maps.

    DuckDB 2.0 returns other values for those in lists of fixed size, and refuses batches whose
    other lists are all empty. Types with list views stay: Arrow 26 casts nothing to list views, and
    from list views to other values.
    """
    return pa.schema([field.with_type(_with_values_in_lists(field.type)) for field in schema],
                     schema.metadata)


def has_dictionary_in_list(t: pa.DataType) -> bool:
    """Whether there are dictionaries in lists or maps at any depth."""
    if isinstance(t, pa.BaseExtensionType):
        return has_dictionary_in_list(t.storage_type)
    return is_nested(t) and any(map(
        has_dictionary_in_list if pa.types.is_struct(t) else has_dictionary, _children(t)))


def contains(t: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is of a kind, or has one in it at any depth."""
    if isinstance(t, pa.BaseExtensionType):
        return contains(t.storage_type, is_kind)
    return is_kind(t) or (is_nested(t) and any(contains(child, is_kind) for child in _children(t)))


def is_list_view(t: pa.DataType) -> bool:
    """Whether this is one of Arrow's list views."""
    return pa.types.is_list_view(t) or pa.types.is_large_list_view(t)


def _with_values_in_lists(t: pa.DataType) -> pa.DataType:
    if not has_dictionary_in_list(t) or contains(t, is_list_view):
        return t
    if isinstance(t, pa.BaseExtensionType):
        return _with_values_in_lists(t.storage_type)
    return _with_children(t, [_with_values_in_lists(child) if pa.types.is_struct(t)
                              else _with_values(child, pa.types.is_dictionary)
                              for child in _children(t)])


def _with_values(t: pa.DataType, is_kind: Callable[[pa.DataType], bool]) -> pa.DataType:
    """Return the type with values in the place of dictionaries of a kind."""
    if not contains(t, is_kind):
        return t
    if isinstance(t, pa.BaseExtensionType):
        return _with_values(t.storage_type, is_kind)
    return t.value_type if pa.types.is_dictionary(t) \
        else _with_children(t, [_with_values(child, is_kind) for child in _children(t)])


# --- half floats in dictionaries -----------------------------------------------------------------

def without_half_dictionaries(schema: pa.Schema) -> pa.Schema:
    """Return the schema with half floats instead of dictionaries of half floats.

    pyarrow reads them as half floats from a file, whatever their original type.
    """
    if not any(map(_has_half_dictionary, schema.types)):
        return schema
    return pa.schema([field.with_type(_with_values(field.type, _is_half_dictionary))
                      for field in schema], schema.metadata)


def decode_half_dictionaries(table: pa.Table) -> pa.Table:
    """Convert a table to the schema that :func:`without_half_dictionaries` returns for its own.

    If pyarrow concatenates pieces of such an array while writing, and the dictionary contains a
    NaN, it would write the bits of each half float as a number: 15872.0 instead of 1.5.
    """
    if not any(map(_has_half_dictionary, table.schema.types)):
        return table
    schema = without_half_dictionaries(table.schema)
    return pa.table([pa.chunked_array([_decoded(chunk) for chunk in column.chunks], field.type)
                     for column, field in zip(table.columns, schema, strict=True)], schema=schema)


def _decoded(array: pa.Array) -> pa.Array:
    return with_leaves(array, lambda leaf: leaf.dictionary.take(leaf.indices),
                        _has_half_dictionary)


def _is_half_dictionary(t: pa.DataType) -> bool:
    return pa.types.is_dictionary(t) and pa.types.is_float16(t.value_type)


def _has_half_dictionary(t: pa.DataType) -> bool:
    return contains(t, _is_half_dictionary)
