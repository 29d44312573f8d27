//! Reads the engine's journals without the engine.
//!
//! ```text
//!   batch   1 items:u32 number:u64   item*   3 xxh3(items):u64 "FJL\x03"
//!   item    2 kind:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32   key stored-value
//!         | 4 keyspace:u64
//! ```
//!
//! All integers are little-endian. This is the format of the one engine version that the
//! workspace pins. The engine allocates a journal ahead of its data, so zeroes may follow the
//! last batch.
//!
//! The checksum covers the items, but not the batch's number. Numbers increase strictly within
//! a journal and from one journal to the next. No crash leaves a whole batch whose number does
//! not increase, so such a batch is damage.
//!
//! Memory is bounded: keys and values pass through a buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

const BATCH: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
/// The compression type of a value that is stored as it is. The only other type is compressed.
const UNCOMPRESSED: u8 = 0;
/// The largest difference between the numbers of two consecutive batches. Flushes and merges
/// also take numbers.
const NUMBER_STEP_MAX: u64 = 1 << 40;
/// The size of the reader's buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes before the first item of a batch.
const HEAD_BYTES: usize = 13;

/// The directory of the journals' second names. A journal with a second name is not lost with
/// the first.
pub(crate) const JOURNALS_DIR: &str = "journals";

/// A sound batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The position in the file where the batch begins.
    pub(crate) at: u64,
    /// The position where the batch ends.
    pub(crate) end: u64,
    pub(crate) number: u64,
}

/// The content at a position in a journal.
enum Found {
    Batch(Batch),
    /// No batch begins here: the byte is zero, or the file has ended.
    Nothing,
    Unsound(&'static str),
    /// A whole batch whose number does not follow the previous one.
    OutOfOrder(u64),
}

/// The state of a journal after its last sound batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Only zeroes follow the last batch.
    Clean,
    /// Other bytes follow.
    Unsound {
        why: &'static str,
        /// The number of these bytes, without the zeroes at the end of the file.
        bytes: u64,
    },
    /// A whole batch follows, but its number does not follow the previous one.
    OutOfOrder { number: u64 },
}

/// A journal, read up to its first unsound batch.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) path: PathBuf,
    /// The journal's number, from its file name.
    pub(crate) id: u64,
    /// The position where the sound batches end.
    pub(crate) end: u64,
    /// The number of the last batch in this or an earlier journal.
    pub(crate) last: Option<u64>,
    /// The number of the last batch in this journal.
    pub(crate) own: Option<u64>,
    pub(crate) tail: Tail,
    /// `end` and `last` as they were before the last sound batch.
    before: (u64, Option<u64>),
}

/// The path of a journal in the engine's directory, or in that of the second names.
pub(crate) fn journal_file(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.jnl"))
}

/// Lists the journals in an engine's directory, sorted by number.
pub(crate) fn list(engine: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(engine)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort_unstable();
    Ok(journals)
}

impl Journal {
    /// Reads a journal whose batches have numbers above `last`. Passes each sound batch to
    /// `sound`.
    pub(crate) fn read(
        file: &(u64, PathBuf),
        last: Option<u64>,
        sound: impl FnMut(&Batch),
    ) -> io::Result<Journal> {
        Journal::read_open(File::open(&file.1)?, file, last, sound)
    }

    /// Like [`read`](Journal::read), from a file that is open at its beginning.
    pub(crate) fn read_open(
        open: File,
        (id, path): &(u64, PathBuf),
        mut last: Option<u64>,
        mut sound: impl FnMut(&Batch),
    ) -> io::Result<Journal> {
        let mut reader = Reader::new(open);
        let (mut end, mut own) = (0, None);
        let mut before = (end, last);
        let tail = loop {
            match reader.batch(last)? {
                Found::Batch(batch) => {
                    before = (end, last);
                    (end, last, own) = (batch.end, Some(batch.number), Some(batch.number));
                    sound(&batch);
                }
                Found::Nothing => match reader.written_after(end)? {
                    0 => break Tail::Clean,
                    bytes => break Tail::Unsound { why: "no batch begins there", bytes },
                },
                Found::Unsound(why) => {
                    break Tail::Unsound { why, bytes: reader.written_after(end)? };
                }
                Found::OutOfOrder(number) => break Tail::OutOfOrder { number },
            }
        };
        Ok(Journal { path: path.clone(), id: *id, end, last, own, tail, before })
    }

    /// Returns the sound batches after the unsound one. Also returns the number of the unsound
    /// batch, if its head can be read.
    pub(crate) fn behind(&self) -> io::Result<Behind> {
        if self.tail == Tail::Clean {
            return Ok(Behind::default());
        }
        self.behind_in(File::open(&self.path)?)
    }

    /// Like [`behind`](Journal::behind), from a file that is open at its beginning. The journal
    /// is not clean.
    pub(crate) fn behind_in(&self, open: File) -> io::Result<Behind> {
        let mut reader = Reader::new(open);
        let written = self.end + reader.written_after(self.end)?;
        let mut behind = Behind { torn: reader.head_at(self.end, self.last)?, ..Behind::default() };
        let mut at = self.end;
        let mut last = self.last;
        while let Some(batch) = reader.next_sound(at + 1, written, last)? {
            behind.batches.push(batch);
            (at, last) = (batch.end - 1, Some(batch.number));
        }
        Ok(behind)
    }
}

/// Leaves out each batch with a damaged number that is too high. Because of it, all batches behind
/// seem to be out of order, also those of later journals.
///
/// # Errors
/// An error of reading a journal again.
pub(super) fn leave_out_wrong_numbers(journals: &mut [Journal]) -> io::Result<()> {
    let (mut any, mut last) = (false, None);
    for journal in journals {
        if any {
            let file = (journal.id, std::mem::take(&mut journal.path));
            *journal = Journal::read(&file, last, |_| {})?;
        }
        any |= journal.leave_out_a_wrong_number();
        let behind = journal.behind()?.batches;
        last = behind.last().map_or(journal.last, |batch| Some(batch.number));
    }
    Ok(())
}

impl Journal {
    /// Leaves out the last sound batch, if its number is damaged. Then the batch behind it is out
    /// of order, although it follows the batch before. No checksum covers the number. Returns
    /// whether it did.
    fn leave_out_a_wrong_number(&mut self) -> bool {
        let (end, last) = self.before;
        let Tail::OutOfOrder { number } = self.tail else { return false };
        let is_wrong = follows(number, last);
        if is_wrong {
            (self.end, self.last) = (end, last);
        }
        is_wrong
    }

    /// Copies the sound batches, and leaves out everything unsound between them.
    pub(super) fn copy_sound(&self, to: &mut File) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        io::copy(&mut (&mut file).take(self.end), to)?;
        for batch in self.behind()?.batches {
            file.seek(SeekFrom::Start(batch.at))?;
            io::copy(&mut (&mut file).take(batch.end - batch.at), to)?;
        }
        to.sync_all()
    }
}

/// The content after the position where a journal becomes unsound.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The number of the unsound batch.
    pub(crate) torn: Option<u64>,
    pub(crate) batches: Vec<Batch>,
}

struct Reader {
    file: BufReader<File>,
    at: u64,
}

/// The reason why reading a batch stopped.
enum Stop {
    Unsound(&'static str),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Stop::Unsound("the file ends within it"),
            _ => Stop::Io(error),
        }
    }
}

impl Reader {
    fn new(file: File) -> Reader {
        Reader { file: BufReader::with_capacity(BUFFER_BYTES, file), at: 0 }
    }

    fn go_to(&mut self, at: u64) -> io::Result<()> {
        let step = i64::try_from(at).and_then(|to| i64::try_from(self.at).map(|from| to - from));
        match step {
            Ok(step) => self.file.seek_relative(step)?,
            Err(_) => drop(self.file.seek(SeekFrom::Start(at))?),
        }
        self.at = at;
        Ok(())
    }

    /// Reads the batch at the reader's position.
    fn batch(&mut self, last: Option<u64>) -> io::Result<Found> {
        let at = self.at;
        match self.file.fill_buf()?.first() {
            None | Some(0) => return Ok(Found::Nothing),
            Some(_) => {}
        }
        match self.try_batch() {
            Ok(number) if follows(number, last) => {
                Ok(Found::Batch(Batch { at, end: self.at, number }))
            }
            Ok(number) => Ok(Found::OutOfOrder(number)),
            Err(Stop::Unsound(why)) => Ok(Found::Unsound(why)),
            Err(Stop::Io(error)) => Err(error),
        }
    }

    fn try_batch(&mut self) -> Result<u64, Stop> {
        let head: [u8; HEAD_BYTES] = self.take()?;
        let Some((items, number)) = begin(&head) else {
            return Err(Stop::Unsound("no batch begins there"));
        };
        let mut sum = Xxh3::new();
        for _ in 0..items {
            self.item(&mut sum)?;
        }
        let [end] = self.take()?;
        let stored = u64::from_le_bytes(self.take()?);
        let trailer: [u8; 4] = self.take()?;
        if end != END || trailer != *TRAILER {
            return Err(Stop::Unsound("its end is missing"));
        }
        if sum.digest() == stored {
            Ok(number)
        } else {
            Err(Stop::Unsound("its checksum does not match"))
        }
    }

    fn item(&mut self, sum: &mut Xxh3) -> Result<(), Stop> {
        let [tag] = self.take()?;
        sum.update(&[tag]);
        match tag {
            ITEM => {
                let head: [u8; 20] = self.take()?;
                sum.update(&head);
                let [_kind, compression, rest @ ..] = head;
                let key = u16::from_le_bytes([rest[8], rest[9]]);
                let [value, stored] = [u32_of(&rest[10..14]), u32_of(&rest[14..])];
                if compression == UNCOMPRESSED && value != stored {
                    return Err(Stop::Unsound("the lengths of a value differ"));
                }
                self.pass(u64::from(key) + u64::from(stored), sum)?;
            }
            CLEAR => {
                let keyspace: [u8; 8] = self.take()?;
                sum.update(&keyspace);
            }
            _ => return Err(Stop::Unsound("it has an item of an unknown kind")),
        }
        Ok(())
    }

    /// Skips `bytes` bytes, and adds them to the checksum.
    fn pass(&mut self, mut bytes: u64, sum: &mut Xxh3) -> Result<(), Stop> {
        while bytes > 0 {
            let there = self.file.fill_buf()?;
            if there.is_empty() {
                return Err(Stop::Unsound("the file ends within it"));
            }
            let part = there.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            sum.update(&there[..part]);
            self.file.consume(part);
            self.at += part as u64;
            bytes -= part as u64;
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_exact(bytes);
        match read {
            Ok(()) => self.at += bytes.len() as u64,
            // Some of the bytes were read before the error.
            Err(_) => self.at = self.file.stream_position()?,
        }
        read
    }

    /// The number of bytes from `from` to the last byte that is not zero.
    fn written_after(&mut self, from: u64) -> io::Result<u64> {
        self.go_to(from)?;
        let (mut at, mut end) = (from, from);
        loop {
            let there = self.file.fill_buf()?;
            if there.is_empty() {
                self.at = at;
                return Ok(end - from);
            }
            if let Some(last) = last_written(there) {
                end = at + last as u64 + 1;
            }
            let length = there.len();
            at += length as u64;
            self.file.consume(length);
        }
    }

    /// The number in the head of the batch at `at`, if the head can be read.
    fn head_at(&mut self, at: u64, last: Option<u64>) -> io::Result<Option<u64>> {
        self.go_to(at)?;
        match self.take() {
            Ok(head) => {
                let number = begin(&head).map(|(_, number)| number);
                Ok(number.filter(|number| follows(*number, last)))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the first sound batch that begins at or after `from`, and before `to`.
    fn next_sound(&mut self, from: u64, to: u64, last: Option<u64>) -> io::Result<Option<Batch>> {
        let mut at = from;
        while at < to {
            self.go_to(at)?;
            let there = self.file.fill_buf()?;
            let Some(step) = memchr::memchr(BATCH, there) else {
                at += there.len().max(1) as u64;
                continue;
            };
            at += step as u64;
            self.go_to(at)?;
            // Most of these bytes begin no batch; checking the head excludes nearly all of
            // them.
            if self.head_at(at, last)?.is_some() {
                self.go_to(at)?;
                if let Found::Batch(batch) = self.batch(last)? {
                    return Ok(Some(batch));
                }
            }
            at += 1;
        }
        Ok(None)
    }
}

/// The count of items and the number in a batch's head. `None` if it is no head.
fn begin(head: &[u8; HEAD_BYTES]) -> Option<(u32, u64)> {
    let (items, number) = (u32_of(&head[1..5]), u64_of(&head[5..]));
    (head[0] == BATCH && items > 0).then_some((items, number))
}

fn follows(number: u64, last: Option<u64>) -> bool {
    match last {
        Some(last) => number > last && number - last <= NUMBER_STEP_MAX,
        None => number < NUMBER_STEP_MAX,
    }
}

fn last_written(bytes: &[u8]) -> Option<usize> {
    static ZEROES: [u8; BUFFER_BYTES] = [0; BUFFER_BYTES];
    // Compare the whole part first, because most of it was allocated ahead and is zero.
    if *bytes == ZEROES[..bytes.len()] {
        return None;
    }
    bytes.iter().rposition(|byte| *byte != 0)
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("the caller gives four bytes"))
}

fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller gives eight bytes"))
}

#[cfg(test)]
pub(crate) mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// A batch of one item, as the engine writes it.
    pub(crate) fn sample(number: u64, value: &[u8]) -> Vec<u8> {
        let mut item = vec![2, 0, 0];
        item.extend(7u64.to_le_bytes());
        item.extend(1u16.to_le_bytes());
        item.extend([u32::try_from(value.len()).expect("a short value").to_le_bytes(); 2].concat());
        item.extend(b"k");
        item.extend(value);
        let start = [&[1][..], &1u32.to_le_bytes(), &number.to_le_bytes()].concat();
        let end = [&[3][..], &xxh3_64(&item).to_le_bytes(), TRAILER].concat();
        [start, item, end].concat()
    }

    fn read(data: &[u8]) -> (Journal, Vec<u64>, Behind) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.jnl");
        std::fs::write(&path, data).unwrap();
        let mut numbers = Vec::new();
        let file = list(dir.path()).unwrap().remove(0);
        let journal = Journal::read(&file, None, |batch| numbers.push(batch.number));
        let journal = journal.unwrap();
        let behind = journal.behind().unwrap();
        (journal, numbers, behind)
    }

    #[test]
    fn a_sound_journal_is_clean() {
        let both = [sample(5, b"one"), sample(9, &[b'v'; 500_000])].concat();
        for zeroes in [0, 1, 2 * BUFFER_BYTES + 9] {
            let data = [&both[..], &vec![0; zeroes]].concat();
            let (journal, numbers, _) = read(&data);
            assert_eq!((journal.tail, journal.end), (Tail::Clean, both.len() as u64));
            assert_eq!((journal.id, journal.last, numbers), (3, Some(9), vec![5, 9]));
        }
        assert_eq!(read(&[0; 99]).0.tail, Tail::Clean);
    }

    #[test]
    fn every_flipped_byte_is_noticed_and_what_follows_is_found() {
        let (first, second, third) = (sample(5, b"one"), sample(9, &[1; 150]), sample(12, b"3"));
        let all = [&first[..], &second, &third].concat();
        for at in 0..second.len() {
            let mut data = all.clone();
            data[first.len() + at] ^= 0x41;
            let (journal, numbers, behind) = read(&data);
            assert_eq!(numbers[0], 5);
            if (5..HEAD_BYTES).contains(&at) {
                // These bytes hold the number. The flip makes it larger, so that the third
                // batch is out of order, or makes it too large.
                assert!(matches!(journal.tail, Tail::OutOfOrder { .. }), "byte {at}: {journal:?}");
                continue;
            }
            assert_eq!(journal.end, first.len() as u64, "byte {at}");
            assert!(matches!(journal.tail, Tail::Unsound { .. }), "byte {at}: {journal:?}");
            let found = behind.batches.iter().map(|batch| batch.number).collect::<Vec<_>>();
            assert_eq!(found, [12], "byte {at}");
        }
    }

    #[test]
    fn a_wrong_number_costs_no_batch_of_a_later_journal() {
        let dir = tempfile::tempdir().unwrap();
        let first = [sample(5, b"one"), sample(1 << 30, b"wrong"), sample(9, b"three")].concat();
        let second = [sample(12, b"four"), sample(15, b"five")].concat();
        for (name, data) in [("3.jnl", &first), ("4.jnl", &second)] {
            std::fs::write(dir.path().join(name), data).unwrap();
        }
        let (mut journals, mut last) = (Vec::new(), None);
        for file in list(dir.path()).unwrap() {
            journals.push(Journal::read(&file, last, |_| {}).unwrap());
            last = journals.last().and_then(|journal: &Journal| journal.last);
        }
        assert_eq!(journals[1].tail, Tail::OutOfOrder { number: 12 });
        leave_out_wrong_numbers(&mut journals).unwrap();
        let to = tempfile::tempdir().unwrap();
        let (mut found, mut last) = (Vec::new(), None);
        for journal in &journals {
            let file = (journal.id, journal_file(to.path(), journal.id));
            journal.copy_sound(&mut File::create(&file.1).unwrap()).unwrap();
            let copy = Journal::read(&file, last, |batch| found.push(batch.number)).unwrap();
            assert_eq!(copy.tail, Tail::Clean);
            last = copy.last;
        }
        assert_eq!(found, [5, 9, 12, 15]);
    }

    #[test]
    fn a_number_that_does_not_rise_is_out_of_order() {
        for number in [0, 5, 5 + NUMBER_STEP_MAX + 1] {
            let data = [sample(5, b"one"), sample(number, b"two")].concat();
            let (journal, numbers, behind) = read(&data);
            assert_eq!(journal.tail, Tail::OutOfOrder { number });
            assert_eq!((numbers, behind), (vec![5], Behind::default()), "{number}");
        }
    }

    #[test]
    fn a_torn_batch_is_known_by_its_number() {
        let (first, second) = (sample(5, b"one"), sample(9, &[b'v'; 700]));
        for kept in 1..second.len() {
            let (journal, _, behind) = read(&[&first[..], &second[..kept]].concat());
            let Tail::Unsound { bytes, .. } = journal.tail else { panic!("{kept}") };
            let written = second[..kept].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            assert_eq!(bytes, written as u64);
            let torn = (kept >= HEAD_BYTES).then_some(9);
            assert_eq!(behind, Behind { torn, batches: vec![] }, "{kept}");
        }
    }
}
