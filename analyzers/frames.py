"""Arrow tables as pandas data frames. Needs the extra `pandas`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from analyzers.extras import library

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def data_frame(to_arrow: Callable[[], pa.Table]) -> pd.DataFrame:
    """What `to_arrow` makes, as a data frame in which every integer stays one; nothing is made without pandas.

    Integers are int64 where the table's schema admits no null, else pandas' nullable Int64, so that an id that is not
    there is `<NA>` and the others are no floats. Dictionaries are categories.

    Raises:
        MissingExtraError: pandas or pyarrow is not installed.
    """
    pandas = library("pandas", "pandas", "a data frame")
    arrow = library("pyarrow", "pandas", "a data frame")
    table = to_arrow()
    nullable = {arrow.int64(): pandas.Int64Dtype(), arrow.int32(): pandas.Int32Dtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
    complete = [field for field in table.schema if field.type in nullable and not field.nullable]
    return frame.astype({field.name: field.type.to_pandas_dtype() for field in complete})
