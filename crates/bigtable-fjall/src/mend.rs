//! The tail that a power cut leaves in the engine's journal.
//!
//! A batch that was being written may be there in part, in any part: sectors reach the disk in any order.
//! Nobody was told of it. The engine drops a batch whose end is missing, but refuses to open when one is
//! complete in length and wrong inside, or takes what it finds there for lengths. So an unsound batch
//! at the end is cut off before the engine looks. One with a sound batch behind it is none of a
//! power cut, where every batch was synced before the next: it is left to the engine, and to its error.
//!
//! ```text
//!   batch   1 items:u32 seqno:u64   item*   3 xxh3(items):u64 "FJL\x03"
//!   item    2 kind:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32   key stored-value
//!         | 4 keyspace:u64
//! ```
//!
//! All numbers are little-endian. This is the format of the one engine version that the workspace names;
//! with another, the tests of power cuts say whether it still is.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

const TRAILER: &[u8] = b"FJL\x03";
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Cuts a torn batch off the end of the journal that the engine wrote last.
pub(crate) fn journal(engine: &Path) -> io::Result<()> {
    let Some(path) = newest(engine)? else { return Ok(()) };
    let data = fs::read(&path)?;
    let Some(end) = torn_at(&data) else { return Ok(()) };
    let file = OpenOptions::new().write(true).open(&path)?;
    file.set_len(end as u64)?;
    file.sync_all()
}

/// The journal with the highest number; older ones were synced before it was begun.
fn newest(engine: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest = None;
    let entries = match fs::read_dir(engine) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl"));
        let number = number.and_then(|number| number.parse::<u64>().ok());
        newest = newest.max(number.map(|number| (number, path)));
    }
    Ok(newest.map(|(_, path)| path))
}

/// Where the sound batches end, if something else than zeroes follows, and no sound batch.
fn torn_at(data: &[u8]) -> Option<usize> {
    let mut end = 0;
    while let Some(length) = batch(&data[end..]) {
        end += length;
    }
    // Chunks are compared as a whole: the journal is allocated ahead, and most of it zeroes.
    let chunks = data[end..].chunks(ZEROES.len());
    let written = chunks.rev().skip_while(|chunk| **chunk == ZEROES[..chunk.len()]).count();
    let tail = &data[end..data.len().min(end + written * ZEROES.len())];
    let more = (0..tail.len()).any(|at| tail[at] == 1 && batch(&tail[at..]).is_some());
    (!tail.is_empty() && !more).then_some(end)
}

/// The length of the sound batch at the start of `data`, if there is one.
fn batch(data: &[u8]) -> Option<usize> {
    let mut rest = data;
    let [1] = *take(&mut rest)? else { return None };
    let items = u32::from_le_bytes(*take(&mut rest)?);
    let _seqno: &[u8; 8] = take(&mut rest)?;
    let begin = data.len() - rest.len();
    for _ in 0..items {
        item(&mut rest)?;
    }
    let sum = xxh3_64(&data[begin..data.len() - rest.len()]);
    let [3] = *take(&mut rest)? else { return None };
    let sound = sum == u64::from_le_bytes(*take(&mut rest)?) && rest.starts_with(TRAILER);
    sound.then(|| data.len() - rest.len() + TRAILER.len())
}

/// Passes over an item.
fn item(rest: &mut &[u8]) -> Option<()> {
    match *take(rest)? {
        [2] => {
            let _kind_compression_keyspace: &[u8; 10] = take(rest)?;
            let key = u16::from_le_bytes(*take(rest)?);
            let _value: &[u8; 4] = take(rest)?;
            let stored = u32::from_le_bytes(*take(rest)?);
            *rest = rest.get(usize::from(key) + usize::try_from(stored).ok()?..)?;
        }
        [4] => {
            let _keyspace: &[u8; 8] = take(rest)?;
        }
        _ => return None,
    }
    Some(())
}

/// Takes so many bytes off the front.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(value: &[u8]) -> Vec<u8> {
        let mut item = vec![2, 0, 0];
        item.extend(7u64.to_le_bytes());
        item.extend(1u16.to_le_bytes());
        item.extend([u32::try_from(value.len()).expect("a short value").to_le_bytes(); 2].concat());
        item.extend(b"k");
        item.extend(value);
        let start = [&[1][..], &1u32.to_le_bytes(), &9u64.to_le_bytes()].concat();
        let end = [&[3][..], &xxh3_64(&item).to_le_bytes(), TRAILER].concat();
        [start, item, end].concat()
    }

    #[test]
    fn only_a_torn_end_is_cut_off() {
        let (first, second) = (sample(b"one"), sample(&[b'v'; 5000]));
        let both = [&first[..], &second].concat();
        assert_eq!(torn_at(&both), None);
        assert_eq!(torn_at(&[&both[..], &ZEROES, &ZEROES[..9]].concat()), None);
        for at in first.len()..both.len() {
            let mut damaged = both.clone();
            damaged[at] ^= 0x40;
            // Where the engine does not look, the byte does not matter: the batch's number.
            let number = first.len() + 5..first.len() + 13;
            assert_eq!(torn_at(&damaged), (!number.contains(&at)).then_some(first.len()), "{at}");
            damaged.extend(&first);
            assert_eq!(torn_at(&damaged), None, "{at}: a sound batch follows");
        }
    }
}
