//! Caches which server holds which rows: the regions that `hbase:meta` lists.
//!
//! A region that enters the cache replaces all older ones that it overlaps, so splits and merges
//! need no further handling. The client removes a region when its server reports that it has
//! moved, or when an answer is lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use bytes::Bytes;
use prost::Message;

use crate::proto::{self, RegionInfo};

/// The first bytes of `info:regioninfo`.
const MAGIC: &[u8] = b"PBUF";

/// A range of a table's rows on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    /// The region's full name: its row in `hbase:meta`.
    pub(crate) name: Bytes,
    /// A region that was created later has a higher number.
    pub(crate) id: u64,
    /// The first row.
    pub(crate) start: Bytes,
    /// The row after the last one; empty if the region has no end.
    pub(crate) end: Bytes,
    /// The server, as `host:port`.
    pub(crate) server: String,
}

impl Region {
    fn overlaps(&self, other: &Region) -> bool {
        let before = |a: &Region, b: &Region| !a.end.is_empty() && a.end <= b.start;
        !before(self, other) && !before(other, self)
    }

    /// True if the region contains the row.
    pub(crate) fn contains(&self, row: &[u8]) -> bool {
        self.start[..] <= *row && (self.end.is_empty() || *row < self.end[..])
    }

    /// The region that a row of `hbase:meta` describes. `None` if it is offline, split or on no
    /// server, or if it is a replica, which this client never uses.
    pub(crate) fn of_meta(cells: &[proto::Cell]) -> Option<Self> {
        let value = |qualifier: &[u8]| {
            let cell = cells.iter().find(|cell| cell.qualifier == qualifier)?;
            (!cell.value.is_empty()).then(|| cell.value.clone())
        };
        let info = value(b"regioninfo")?;
        let info = RegionInfo::decode(info.strip_prefix(MAGIC)?).ok()?;
        let gone = info.offline == Some(true) || info.split == Some(true);
        if gone || info.replica_id.unwrap_or(0) != 0 {
            return None;
        }
        let server = String::from_utf8(value(b"server")?.to_vec()).ok()?;
        Some(Region {
            name: cells.first()?.row.clone(),
            id: info.region_id,
            start: info.start_key.unwrap_or_default(),
            end: info.end_key.unwrap_or_default(),
            server,
        })
    }

    /// The region of `hbase:meta` itself, which is never split.
    pub(crate) fn meta(server: String) -> Self {
        let (name, id) = (Bytes::from_static(b"hbase:meta,,1"), 1);
        Region { name, id, start: Bytes::new(), end: Bytes::new(), server }
    }
}

/// The known regions, by table and first row.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    tables: Mutex<HashMap<Bytes, BTreeMap<Bytes, Arc<Region>>>>,
}

impl Regions {
    /// The known region that holds a row.
    pub(crate) fn of(&self, table: &Bytes, row: &[u8]) -> Option<Arc<Region>> {
        let tables = locked(&self.tables);
        let (_, region) = tables.get(table)?.range(..=Bytes::copy_from_slice(row)).next_back()?;
        region.contains(row).then(|| region.clone())
    }

    /// Adds a region, unless a younger one overlaps it.
    pub(crate) fn put(&self, table: &Bytes, region: &Arc<Region>) {
        let mut tables = locked(&self.tables);
        let regions = tables.entry(table.clone()).or_default();
        let overlapping = |other: &&Arc<Region>| other.overlaps(region);
        let rivals: Vec<Arc<Region>> = regions.values().filter(overlapping).cloned().collect();
        if rivals.iter().any(|rival| rival.id > region.id) {
            return;
        }
        for rival in rivals {
            regions.remove(&rival.start);
        }
        regions.insert(region.start.clone(), region.clone());
    }

    /// Removes a region, unless another one has replaced it.
    pub(crate) fn forget(&self, table: &Bytes, region: &Region) {
        let mut tables = locked(&self.tables);
        if let Some(regions) = tables.get_mut(table)
            && regions.get(&region.start).is_some_and(|known| **known == *region)
        {
            regions.remove(&region.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(id: u64, start: &'static str, end: &'static str) -> Arc<Region> {
        let name = Bytes::from(format!("t,{start},{id}"));
        let (start, end) = (Bytes::from(start), Bytes::from(end));
        Arc::new(Region { name, id, start, end, server: format!("host:{id}") })
    }

    #[test]
    fn a_younger_region_takes_the_place_of_those_that_it_overlaps() {
        let (regions, table) = (Regions::default(), Bytes::from_static(b"t"));
        let id_of = |row: &str| regions.of(&table, row.as_bytes()).map(|region| region.id);
        regions.put(&table, &region(1, "", "m"));
        regions.put(&table, &region(1, "m", ""));
        assert_eq!((id_of("a"), id_of("m"), id_of("z")), (Some(1), Some(1), Some(1)));
        // The first region is split, and a late answer still describes the whole.
        regions.put(&table, &region(2, "", "f"));
        assert_eq!((id_of("a"), id_of("g"), id_of("z")), (Some(2), None, Some(1)));
        regions.put(&table, &region(1, "", "m"));
        assert_eq!((id_of("a"), id_of("g")), (Some(2), None));
        regions.put(&table, &region(2, "f", "m"));
        assert_eq!(id_of("g"), Some(2));
        // All regions are merged.
        regions.put(&table, &region(3, "", ""));
        assert_eq!((id_of("a"), id_of("g"), id_of("z")), (Some(3), Some(3), Some(3)));
        regions.forget(&table, &region(2, "", "f"));
        assert_eq!(id_of("a"), Some(3));
        regions.forget(&table, &region(3, "", ""));
        assert_eq!(id_of("a"), None);
    }
}
