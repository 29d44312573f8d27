//! The oracle process that is measured, and a peer that sends back what it gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use percolator_rpc::Address;

/// Length of a message that is sent to and fro: about that of a request for timestamps.
pub(super) const MESSAGE_BYTES: usize = 32;

/// `percolator serve oracle` over a temporary directory; ends with this.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    address: Address,
    _data: tempfile::TempDir,
}

impl Server {
    pub(super) fn start() -> anyhow::Result<Self> {
        let data = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
        let program = std::env::current_exe().context("this program's own file")?;
        let mut child = Command::new(program)
            .args(["serve", "oracle", "--listen", "127.0.0.1:0", "--json", "--data"])
            .arg(data.path().join("store"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting `percolator serve oracle`")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the server's output")?;
        let read = BufReader::new(stdout).read_line(&mut line);
        let server = |address| Server { child, address, _data: data };
        let told = read.map_err(anyhow::Error::from).and_then(|_| {
            let told: serde_json::Value = serde_json::from_str(&line)?;
            let address = told["address"].as_str().context("the server told no address")?;
            Ok(address.parse::<Address>()?)
        });
        match told {
            Ok(address) => Ok(server(address)),
            Err(error) => {
                // Ends the process.
                drop(server(Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))));
                Err(error.context("`percolator serve oracle` did not start"))
            }
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Processor time of the server so far; `None` where it cannot be had.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name in parentheses may hold anything; user and system time are fields 14 and 15.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        // A hundred ticks a second on every Linux.
        Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
