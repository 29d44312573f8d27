//! Reads and writes the bytes of records: big-endian numbers and length-prefixed strings.
//!
//! Invariant: every length is compared with the bytes that are left before it is used, because
//! the bytes may be damaged.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Reads a record from its front. Each method returns `None` if too few bytes are left.
#[derive(Debug)]
pub(crate) struct Reader {
    left: Bytes,
}

impl Reader {
    pub(crate) fn new(bytes: &Bytes) -> Self {
        Reader { left: bytes.clone() }
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.left.try_get_u8().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.left.try_get_u16().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.left.try_get_u32().ok()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.left.try_get_u64().ok()
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.left.try_get_u128().ok()
    }

    pub(crate) fn bytes16(&mut self) -> Option<Bytes> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    pub(crate) fn bytes32(&mut self) -> Option<Bytes> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }

    pub(crate) fn string16(&mut self) -> Option<String> {
        String::from_utf8(self.bytes16()?.to_vec()).ok()
    }

    fn take(&mut self, len: usize) -> Option<Bytes> {
        (len <= self.left.len()).then(|| self.left.split_to(len))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

/// Writes the length of a string and then the string, which has less than 64 KiB.
pub(crate) fn put_bytes16(out: &mut BytesMut, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("names are bounded far below 64 KiB");
    out.put_u16(len);
    out.put_slice(bytes);
}

/// Writes the length of a string and then the string, which has less than 4 GiB.
pub(crate) fn put_bytes32(out: &mut BytesMut, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("values are bounded far below 4 GiB");
    out.put_u32(len);
    out.put_slice(bytes);
}

/// The start of a text, at most so many bytes.
pub(crate) fn start_of(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
