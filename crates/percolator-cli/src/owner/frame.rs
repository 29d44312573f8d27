//! Reads and writes frames, the messages between the two ends of an owner's socket.
//!
//! A frame consists of its kind in one byte, the length of its content in four bytes, least
//! significant first, and the content. The form of a frame and the content of [`Kind::Hello`]
//! never change. So two versions of the program can at least report that they differ.

use std::io::{self, Read, Write};

/// The most bytes of a frame's content. A command line on Linux has at most half as many.
const CONTENT_MAX: usize = 4 << 20;

/// The most bytes of output in one frame.
const PIECE_MAX: usize = 64 << 10;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The owner introduces itself, in JSON.
    Hello = 1,
    /// An argument of the command line.
    Argument = 2,
    /// A part of the command's input.
    Input = 3,
    /// The request is complete. The content is what the owner must know besides, in JSON.
    Ask = 4,
    /// The user of the command has pressed Ctrl-C.
    Interrupt = 5,
    /// A part of the command's standard output.
    Stdout = 6,
    /// A part of its standard error.
    Stderr = 7,
    /// A line for the file of events.
    Event = 8,
    /// The command has ended, with this exit code.
    Exit = 9,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Hello,
        Kind::Argument,
        Kind::Input,
        Kind::Ask,
        Kind::Interrupt,
        Kind::Stdout,
        Kind::Stderr,
        Kind::Event,
        Kind::Exit,
    ];
}

/// Writes one frame.
pub(super) fn write(to: &mut (impl Write + ?Sized), kind: Kind, content: &[u8]) -> io::Result<()> {
    if content.len() > CONTENT_MAX {
        let what =
            format!("{kind:?} has {} bytes, at most {CONTENT_MAX} can be sent", content.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(5 + content.len());
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(content);
    to.write_all(&frame)
}

/// Writes content of any length as frames of one kind.
pub(super) fn write_pieces(
    to: &mut (impl Write + ?Sized),
    kind: Kind,
    content: &[u8],
) -> io::Result<()> {
    content.chunks(PIECE_MAX).try_for_each(|piece| write(to, kind, piece))
}

/// Reads the next frame. Returns `None` if the other end has closed the connection between two
/// frames.
pub(super) fn read(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let malformed = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut kind = [0];
    loop {
        match from.read(&mut kind) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind[0]);
    let kind =
        known.ok_or_else(|| malformed(format!("a frame is of the unknown kind {}", kind[0])))?;
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length as usize > CONTENT_MAX {
        return Err(malformed(format!("{kind:?} claims {length} bytes")));
    }
    // Memory grows only with the bytes that arrive, so a false length allocates nothing.
    let mut content = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut content)?;
    if content.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((kind, content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> io::Result<Vec<(Kind, Vec<u8>)>> {
        let mut frames = Vec::new();
        while let Some(frame) = read(&mut bytes)? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn frames_come_as_they_were_sent() {
        let mut sent = Vec::new();
        for kind in Kind::ALL {
            write(&mut sent, kind, format!("{kind:?}").as_bytes()).unwrap();
            write(&mut sent, kind, b"").unwrap();
        }
        let frames = all(&sent).unwrap();
        assert_eq!(frames.len(), 2 * Kind::ALL.len());
        for (pair, kind) in frames.chunks(2).zip(Kind::ALL) {
            assert_eq!(pair[0], (kind, format!("{kind:?}").into_bytes()));
            assert_eq!(pair[1], (kind, Vec::new()));
        }
    }

    #[test]
    fn long_content_goes_in_pieces() {
        let content: Vec<u8> = (0..PIECE_MAX * 2 + 7).map(|n| n as u8).collect();
        let mut sent = Vec::new();
        write_pieces(&mut sent, Kind::Stdout, &content).unwrap();
        let frames = all(&sent).unwrap();
        assert_eq!(frames.iter().map(|frame| frame.1.len()).max(), Some(PIECE_MAX));
        let whole: Vec<u8> = frames.into_iter().flat_map(|frame| frame.1).collect();
        assert!(whole == content);
    }

    #[test]
    fn frames_that_are_too_long_unknown_or_cut_off_are_refused() {
        let kind = |bytes: &[u8]| all(bytes).unwrap_err().kind();
        let mut long = vec![Kind::Input as u8];
        long.extend_from_slice(&(CONTENT_MAX as u32 + 1).to_le_bytes());
        assert_eq!(kind(&long), io::ErrorKind::InvalidData);
        assert_eq!(kind(&[0, 0, 0, 0, 0]), io::ErrorKind::InvalidData);
        assert_eq!(kind(&[10, 0, 0, 0, 0]), io::ErrorKind::InvalidData);
        let mut sent = Vec::new();
        write(&mut sent, Kind::Ask, b"{}").unwrap();
        for cut in 1..sent.len() {
            assert_eq!(kind(&sent[..cut]), io::ErrorKind::UnexpectedEof, "after {cut} bytes");
        }
        let too_long = vec![0; CONTENT_MAX + 1];
        assert!(write(&mut Vec::new(), Kind::Argument, &too_long).is_err());
    }
}
