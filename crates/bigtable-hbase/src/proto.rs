//! Declares by hand the messages of HBase's protocol that this crate sends or reads.
//!
//! Each message has only the fields that this crate uses. A server accepts a message without
//! the others, and this crate skips fields that it does not know. The field numbers are those
//! of HBase 2.6. HBase's files are proto2, so repeated numbers are not packed.

use bytes::Bytes;

/// Declares messages: `field: kind = tag`, with prost's keywords for the kind.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty [$($kind:tt)*]),* $(,)? })*) => {
        $($(#[$doc])* #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name { $(#[prost($($kind)*)] pub(crate) $field: $type),* })*
    };
}

messages! {
    /// The first message on a connection.
    ConnectionHeader {
        user_info: Option<UserInformation> [message, optional, tag = "1"],
        service_name: String [string, required, tag = "2"],
    }
    UserInformation { effective_user: String [string, required, tag = "1"] }
    RequestHeader {
        call_id: u32 [uint32, required, tag = "1"],
        method_name: String [string, required, tag = "3"],
        request_param: bool [bool, required, tag = "4"],
        timeout: u32 [uint32, required, tag = "7"],
    }
    ResponseHeader {
        call_id: u32 [uint32, required, tag = "1"],
        exception: Option<ExceptionResponse> [message, optional, tag = "2"],
    }
    ExceptionResponse {
        exception_class_name: Option<String> [string, optional, tag = "1"],
        stack_trace: Option<String> [string, optional, tag = "2"],
        hostname: Option<String> [string, optional, tag = "3"],
        port: Option<i32> [int32, optional, tag = "4"],
        do_not_retry: Option<bool> [bool, optional, tag = "5"],
    }

    /// Any request without fields.
    Nothing {}
    ServerName {
        host_name: String [string, required, tag = "1"],
        port: Option<u32> [uint32, optional, tag = "2"],
        start_code: Option<u64> [uint64, optional, tag = "3"],
    }
    ClusterIdResponse { cluster_id: Option<String> [string, optional, tag = "1"] }
    ActiveMasterResponse { server_name: Option<ServerName> [message, optional, tag = "1"] }
    MetaLocationsResponse { meta_locations: Vec<RegionLocation> [message, repeated, tag = "1"] }
    RegionLocation {
        region_info: RegionInfo [message, required, tag = "1"],
        server_name: Option<ServerName> [message, optional, tag = "2"],
    }

    TableName {
        namespace: Bytes [bytes = "bytes", required, tag = "1"],
        qualifier: Bytes [bytes = "bytes", required, tag = "2"],
    }
    RegionInfo {
        region_id: u64 [uint64, required, tag = "1"],
        table_name: TableName [message, required, tag = "2"],
        start_key: Option<Bytes> [bytes = "bytes", optional, tag = "3"],
        end_key: Option<Bytes> [bytes = "bytes", optional, tag = "4"],
        offline: Option<bool> [bool, optional, tag = "5"],
        split: Option<bool> [bool, optional, tag = "6"],
        replica_id: Option<i32> [int32, optional, tag = "7"],
    }
    RegionSpecifier {
        kind: i32 [int32, required, tag = "1"],
        value: Bytes [bytes = "bytes", required, tag = "2"],
    }
    NameBytesPair {
        name: String [string, required, tag = "1"],
        value: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
    }
    BytesBytesPair {
        first: Bytes [bytes = "bytes", required, tag = "1"],
        second: Bytes [bytes = "bytes", required, tag = "2"],
    }
    NameStringPair {
        name: String [string, required, tag = "1"],
        value: String [string, required, tag = "2"],
    }

    TableSchema {
        table_name: Option<TableName> [message, optional, tag = "1"],
        attributes: Vec<BytesBytesPair> [message, repeated, tag = "2"],
        column_families: Vec<ColumnFamilySchema> [message, repeated, tag = "3"],
        configuration: Vec<NameStringPair> [message, repeated, tag = "4"],
    }
    ColumnFamilySchema {
        name: Bytes [bytes = "bytes", required, tag = "1"],
        attributes: Vec<BytesBytesPair> [message, repeated, tag = "2"],
    }
    CreateTableRequest {
        table_schema: TableSchema [message, required, tag = "1"],
        split_keys: Vec<Bytes> [bytes = "bytes", repeated, tag = "2"],
        nonce_group: u64 [uint64, required, tag = "3"],
        nonce: u64 [uint64, required, tag = "4"],
    }
    CreateNamespaceRequest {
        descriptor: NamespaceDescriptor [message, required, tag = "1"],
        nonce_group: u64 [uint64, required, tag = "2"],
        nonce: u64 [uint64, required, tag = "3"],
    }
    NamespaceDescriptorRequest { namespace: String [string, required, tag = "1"] }
    NamespaceDescriptor { name: Bytes [bytes = "bytes", required, tag = "1"] }
    ProcedureResponse { proc_id: Option<u64> [uint64, optional, tag = "1"] }
    GetTableDescriptorsRequest {
        table_names: Vec<TableName> [message, repeated, tag = "1"],
    }
    GetTableDescriptorsResponse {
        table_schema: Vec<TableSchema> [message, repeated, tag = "1"],
    }
    GetTableNamesRequest { namespace: Option<String> [string, optional, tag = "3"] }
    GetTableNamesResponse { table_names: Vec<TableName> [message, repeated, tag = "1"] }
    GetProcedureResultRequest { proc_id: u64 [uint64, required, tag = "1"] }
    GetProcedureResultResponse {
        state: i32 [int32, required, tag = "1"],
        exception: Option<ForeignException> [message, optional, tag = "5"],
    }
    ForeignException {
        generic_exception: Option<GenericException> [message, optional, tag = "2"],
    }
    GenericException {
        class_name: Option<String> [string, optional, tag = "1"],
        message: Option<String> [string, optional, tag = "2"],
    }
    FlushRegionRequest {
        region: RegionSpecifier [message, required, tag = "1"],
        family: Option<Bytes> [bytes = "bytes", optional, tag = "4"],
    }
    CompactRegionRequest {
        region: RegionSpecifier [message, required, tag = "1"],
        major: Option<bool> [bool, optional, tag = "2"],
        family: Option<Bytes> [bytes = "bytes", optional, tag = "3"],
    }
    RegionInfoRequest {
        region: RegionSpecifier [message, required, tag = "1"],
        compaction_state: Option<bool> [bool, optional, tag = "2"],
    }
    RegionInfoResponse {
        region_info: RegionInfo [message, required, tag = "1"],
        compaction_state: Option<i32> [int32, optional, tag = "2"],
    }

    ClusterStatusRequest { options: Vec<i32> [int32, repeated, packed = "false", tag = "1"] }
    ClusterStatusResponse { cluster_status: ClusterStatus [message, required, tag = "1"] }
    ClusterStatus {
        hbase_version: Option<Version> [message, optional, tag = "1"],
        live_servers: Vec<LiveServer> [message, repeated, tag = "2"],
        master: Option<ServerName> [message, optional, tag = "7"],
        balancer_on: Option<bool> [bool, optional, tag = "9"],
        master_info_port: Option<i32> [int32, optional, tag = "10"],
    }
    Version { version: String [string, required, tag = "1"] }
    LiveServer {
        server: ServerName [message, required, tag = "1"],
        server_load: ServerLoad [message, required, tag = "2"],
    }
    ServerLoad {
        region_loads: Vec<Nothing> [message, repeated, tag = "5"],
        info_server_port: Option<u32> [uint32, optional, tag = "9"],
    }
    MoveRegionRequest {
        region: RegionSpecifier [message, required, tag = "1"],
        dest_server_name: Option<ServerName> [message, optional, tag = "2"],
    }
    SplitRegionRequest {
        region_info: RegionInfo [message, required, tag = "1"],
        split_row: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
        nonce_group: u64 [uint64, required, tag = "3"],
        nonce: u64 [uint64, required, tag = "4"],
    }
    MergeRegionsRequest {
        region: Vec<RegionSpecifier> [message, repeated, tag = "1"],
        forcible: Option<bool> [bool, optional, tag = "3"],
        nonce_group: u64 [uint64, required, tag = "4"],
        nonce: u64 [uint64, required, tag = "5"],
    }

    Cell {
        row: Bytes [bytes = "bytes", tag = "1"],
        family: Bytes [bytes = "bytes", tag = "2"],
        qualifier: Bytes [bytes = "bytes", tag = "3"],
        timestamp: u64 [uint64, tag = "4"],
        value: Bytes [bytes = "bytes", tag = "6"],
    }
    Column {
        family: Bytes [bytes = "bytes", required, tag = "1"],
        qualifier: Vec<Bytes> [bytes = "bytes", repeated, tag = "2"],
    }
    /// From `from`, included, to `to`, excluded.
    TimeRange {
        from: Option<u64> [uint64, optional, tag = "1"],
        to: Option<u64> [uint64, optional, tag = "2"],
    }
    FamilyTimeRange {
        column_family: Bytes [bytes = "bytes", required, tag = "1"],
        time_range: TimeRange [message, required, tag = "2"],
    }
    Get {
        row: Bytes [bytes = "bytes", required, tag = "1"],
        column: Vec<Column> [message, repeated, tag = "2"],
        max_versions: Option<u32> [uint32, optional, tag = "6"],
        family_time_range: Vec<FamilyTimeRange> [message, repeated, tag = "13"],
    }
    CellsOfRow {
        cell: Vec<Cell> [message, repeated, tag = "1"],
        partial: Option<bool> [bool, optional, tag = "5"],
    }
    Filter {
        name: String [string, required, tag = "1"],
        serialized_filter: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
    }
    KeyOnlyFilter { len_as_val: bool [bool, required, tag = "1"] }
    FilterList {
        operator: i32 [int32, required, tag = "1"],
        filters: Vec<Filter> [message, repeated, tag = "2"],
    }
    /// The content of a filter that compares one part of a cell.
    ComparingFilter { compare: CompareFilter [message, required, tag = "1"] }
    CompareFilter {
        compare_op: i32 [int32, required, tag = "1"],
        comparator: Option<Comparator> [message, optional, tag = "2"],
    }
    Comparator {
        name: String [string, required, tag = "1"],
        serialized_comparator: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
    }
    /// The content of a comparator that holds one value.
    BytesComparator { comparable: Comparable [message, required, tag = "1"] }
    Comparable { value: Option<Bytes> [bytes = "bytes", optional, tag = "1"] }
    Condition {
        row: Bytes [bytes = "bytes", required, tag = "1"],
        family: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
        qualifier: Option<Bytes> [bytes = "bytes", optional, tag = "3"],
        compare_type: Option<i32> [int32, optional, tag = "4"],
        comparator: Option<Comparator> [message, optional, tag = "5"],
        time_range: Option<TimeRange> [message, optional, tag = "6"],
        filter: Option<Filter> [message, optional, tag = "7"],
    }
    MutationProto {
        row: Option<Bytes> [bytes = "bytes", optional, tag = "1"],
        mutate_type: Option<i32> [int32, optional, tag = "2"],
        column_value: Vec<ColumnValue> [message, repeated, tag = "3"],
        durability: Option<i32> [int32, optional, tag = "6"],
    }
    ColumnValue {
        family: Bytes [bytes = "bytes", required, tag = "1"],
        qualifier_value: Vec<QualifierValue> [message, repeated, tag = "2"],
    }
    QualifierValue {
        qualifier: Option<Bytes> [bytes = "bytes", optional, tag = "1"],
        value: Option<Bytes> [bytes = "bytes", optional, tag = "2"],
        timestamp: Option<u64> [uint64, optional, tag = "3"],
        delete_type: Option<i32> [int32, optional, tag = "4"],
    }
    Action {
        index: Option<u32> [uint32, optional, tag = "1"],
        mutation: Option<MutationProto> [message, optional, tag = "2"],
        get: Option<Get> [message, optional, tag = "3"],
    }
    RegionAction {
        region: RegionSpecifier [message, required, tag = "1"],
        atomic: Option<bool> [bool, optional, tag = "2"],
        action: Vec<Action> [message, repeated, tag = "3"],
        condition: Option<Condition> [message, optional, tag = "4"],
    }
    MultiRequest { region_action: Vec<RegionAction> [message, repeated, tag = "1"] }
    ResultOrException {
        index: Option<u32> [uint32, optional, tag = "1"],
        result: Option<CellsOfRow> [message, optional, tag = "2"],
        exception: Option<NameBytesPair> [message, optional, tag = "3"],
    }
    RegionActionResult {
        result_or_exception: Vec<ResultOrException> [message, repeated, tag = "1"],
        exception: Option<NameBytesPair> [message, optional, tag = "2"],
        processed: Option<bool> [bool, optional, tag = "3"],
    }
    MultiResponse {
        region_action_result: Vec<RegionActionResult> [message, repeated, tag = "1"],
    }

    Scan {
        column: Vec<Column> [message, repeated, tag = "1"],
        start_row: Option<Bytes> [bytes = "bytes", optional, tag = "3"],
        stop_row: Option<Bytes> [bytes = "bytes", optional, tag = "4"],
        filter: Option<Filter> [message, optional, tag = "5"],
        max_versions: Option<u32> [uint32, optional, tag = "7"],
        max_result_size: Option<u64> [uint64, optional, tag = "10"],
        reversed: Option<bool> [bool, optional, tag = "15"],
        family_time_range: Vec<FamilyTimeRange> [message, repeated, tag = "19"],
        include_start_row: Option<bool> [bool, optional, tag = "21"],
        include_stop_row: Option<bool> [bool, optional, tag = "22"],
        need_cursor_result: Option<bool> [bool, optional, tag = "24"],
    }
    ScanRequest {
        region: Option<RegionSpecifier> [message, optional, tag = "1"],
        scan: Option<Scan> [message, optional, tag = "2"],
        scanner_id: Option<u64> [uint64, optional, tag = "3"],
        number_of_rows: Option<u32> [uint32, optional, tag = "4"],
        close_scanner: Option<bool> [bool, optional, tag = "5"],
        next_call_seq: Option<u64> [uint64, optional, tag = "6"],
        client_handles_partials: Option<bool> [bool, optional, tag = "7"],
        client_handles_heartbeats: Option<bool> [bool, optional, tag = "8"],
        limit_of_rows: Option<u32> [uint32, optional, tag = "11"],
    }
    ScanResponse {
        scanner_id: Option<u64> [uint64, optional, tag = "2"],
        more_results: Option<bool> [bool, optional, tag = "3"],
        results: Vec<CellsOfRow> [message, repeated, tag = "5"],
        more_results_in_region: Option<bool> [bool, optional, tag = "8"],
        heartbeat_message: Option<bool> [bool, optional, tag = "9"],
        cursor: Option<Cursor> [message, optional, tag = "12"],
    }
    Cursor { row: Option<Bytes> [bytes = "bytes", optional, tag = "1"] }
}

/// `MutationProto.mutate_type`.
pub(crate) const PUT: i32 = 2;
/// `MutationProto.mutate_type`.
pub(crate) const DELETE: i32 = 3;
/// `QualifierValue.delete_type`: only that version.
pub(crate) const DELETE_ONE_VERSION: i32 = 0;
/// `QualifierValue.delete_type`: that version and all below it.
pub(crate) const DELETE_MULTIPLE_VERSIONS: i32 = 1;
/// `CompareType`: equal.
pub(crate) const EQUAL: i32 = 2;
/// `FilterList.operator`: all filters pass.
pub(crate) const MUST_PASS_ALL: i32 = 1;
/// `FilterList.operator`: one filter passes.
pub(crate) const MUST_PASS_ONE: i32 = 2;
/// `RegionSpecifier.type`: by the region's full name.
const REGION_NAME: i32 = 1;
/// `RegionSpecifier.type`: by the hash in the region's name.
const ENCODED_REGION_NAME: i32 = 2;

impl RegionSpecifier {
    /// A region by its full name.
    pub(crate) fn named(name: &Bytes) -> Self {
        RegionSpecifier { kind: REGION_NAME, value: name.clone() }
    }

    /// A region by the hash in its name.
    pub(crate) fn encoded(hash: Bytes) -> Self {
        RegionSpecifier { kind: ENCODED_REGION_NAME, value: hash }
    }
}
