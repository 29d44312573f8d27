//! A peer that sends back what it gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Length of a message that is sent to and fro: about that of a request for timestamps.
pub(super) const MESSAGE_BYTES: usize = 32;

/// A connection to a thread that sends back what it gets, and ends with the connection.
pub(super) fn echo() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut peer, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    std::thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        while peer.read_exact(&mut message).and_then(|()| peer.write_all(&message)).is_ok() {}
    });
    Ok(stream)
}
