//! Defines the table of the trace and the keys of its rows.

use bigtable::{RowKey, Timestamp};

use crate::Incarnation;

/// The table of the trace.
pub(super) const TABLE: &str = "percolator.trace";
pub(super) const ENTRIES: &str = "trace";
pub(super) const TIME: &str = "time";
/// How many timestamps share a bucket, as a power of two.
const BUCKET_BITS: u32 = 10;
/// The number of key ranges over which the buckets are spread, so that no tablet gets all
/// writes.
pub(super) const SHARDS: u8 = 16;

/// The bucket of a timestamp.
pub(super) fn bucket_of(ts: Timestamp) -> u64 {
    ts.as_u64() >> BUCKET_BITS
}

/// The prefix of a bucket's rows.
pub(super) fn prefix_of(bucket: u64) -> Vec<u8> {
    let mut key = vec![(bucket % u64::from(SHARDS)) as u8];
    key.extend(bucket.to_be_bytes());
    key
}

/// The key of a client's row in a bucket. `number` counts the rows of the client.
pub(super) fn row_of(bucket: u64, client: Incarnation, number: u64) -> RowKey {
    let mut key = prefix_of(bucket);
    key.extend(client.0.to_be_bytes());
    key.extend(number.to_be_bytes());
    key.into()
}

/// The bucket of a row.
pub(super) fn bucket_of_row(row: &RowKey) -> Option<u64> {
    let bytes = row.as_bytes().get(1..9)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_its_bucket_and_shards_are_in_order_of_time() {
        let rows: Vec<RowKey> = (0..64).map(|n| row_of(n, Incarnation(7), 1)).collect();
        for (bucket, row) in rows.iter().enumerate() {
            assert_eq!(bucket_of_row(row), Some(bucket as u64));
        }
        for shard in 0..usize::from(SHARDS) {
            let of: Vec<_> = rows.iter().skip(shard).step_by(usize::from(SHARDS)).collect();
            assert!(of.is_sorted() && of.iter().all(|row| row.as_bytes()[0] == shard as u8));
        }
        assert_eq!(bucket_of_row(&"short".into()), None);
    }
}
