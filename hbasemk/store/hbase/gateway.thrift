/*
 * The part of HBase's Thrift2 interface that hbasemk calls.
 *
 * What travels are method names, field numbers and types, and those are HBase's; the names of fields, structs and the
 * service are ours. Fields that hbasemk never sets and never reads are left out, because every field costs time in
 * every message. Enumerations are plain i32 here, as they are on the wire.
 */

exception HBaseError {
    1: optional binary message
}

struct Column {
    1: required binary family,
    2: optional binary qualifier,
    3: optional i64 timestamp
}

struct ColumnValue {
    1: required binary family,
    2: required binary qualifier,
    3: required binary value,
    4: optional i64 timestamp
}

struct TimeRange {
    1: required i64 since,
    2: required i64 before
}

struct Result {
    1: optional binary row,
    2: required list<ColumnValue> cells
}

struct Get {
    1: required binary row,
    2: optional list<Column> columns,
    4: optional TimeRange time_range,
    5: optional i32 versions,
    6: optional binary filter,
    12: optional i32 cells_per_family
}

struct Scan {
    1: optional binary start,
    2: optional binary stop,
    3: optional list<Column> columns,
    4: optional i32 caching,
    5: optional i32 versions,
    6: optional TimeRange time_range,
    7: optional binary filter,
    11: optional bool reverse,
    15: optional i32 limit
}

struct Put {
    1: required binary row,
    2: required list<ColumnValue> cells
}

struct Delete {
    1: required binary row,
    2: optional list<Column> columns,
    3: optional i64 timestamp,
    /* 0: exactly the given version; 1: it and all older ones; 2: the same of all columns of the family */
    4: optional i32 kind
}

union Mutation {
    1: Put put,
    2: Delete delete_cells
}

struct RowMutations {
    1: required binary row,
    2: required list<Mutation> mutations
}

struct TableName {
    1: optional binary name_space,
    2: required binary qualifier
}

struct Family {
    1: required binary name,
    /* 0: none, 1: row, 2: row and column */
    5: optional i32 bloom_filter,
    /* see layout.py */
    6: optional i32 compression,
    /* 0: none, 2: PREFIX, 3: DIFF, 4: FAST_DIFF, 7: ROW_INDEX_V1 */
    8: optional i32 block_encoding,
    /* 0: no, 1: yes, 2: until their time to live is over */
    9: optional i32 keep_deleted,
    10: optional i32 versions,
    13: optional i32 time_to_live
}

struct TableDescriptor {
    1: required TableName name,
    2: optional list<Family> families
}

struct Region {
    3: optional binary start
}

struct RegionLocation {
    2: required Region region
}

service Gateway {
    Result get(1: binary table, 2: Get what) throws (1: HBaseError error),
    list<Result> getMultiple(1: binary table, 2: list<Get> what) throws (1: HBaseError error),
    list<Result> getScannerResults(1: binary table, 2: Scan what, 3: i32 rows) throws (1: HBaseError error),
    void put(1: binary table, 2: Put what) throws (1: HBaseError error),
    void putMultiple(1: binary table, 2: list<Put> what) throws (1: HBaseError error),
    bool checkAndPut(1: binary table, 2: binary row, 3: binary family, 4: binary qualifier, 5: binary expected,
                     6: Put what) throws (1: HBaseError error),
    void deleteSingle(1: binary table, 2: Delete what) throws (1: HBaseError error),
    list<Delete> deleteMultiple(1: binary table, 2: list<Delete> what) throws (1: HBaseError error),
    void mutateRow(1: binary table, 2: RowMutations what) throws (1: HBaseError error),

    list<TableDescriptor> getTableDescriptors(1: list<TableName> tables) throws (1: HBaseError error),
    bool isTableDisabled(1: TableName table) throws (1: HBaseError error),
    bool isTableAvailable(1: TableName table) throws (1: HBaseError error),
    void createTable(1: TableDescriptor table, 2: list<binary> split_keys) throws (1: HBaseError error),
    void disableTable(1: TableName table) throws (1: HBaseError error),
    void deleteTable(1: TableName table) throws (1: HBaseError error),

    list<RegionLocation> getAllRegionLocations(1: binary table) throws (1: HBaseError error),

    /* 1: Thrift1, 2: Thrift2 */
    i32 getThriftServerType()
}
