//! Stands between a client and the servers of a cluster, and cuts connections at random: behind a
//! request, or in place of an answer.
//!
//! A server announces its own address. So the client asks the proxy for the way to each address
//! ([`Access::way_to`](crate::client::Access::way_to)), and the proxy opens a port for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The bytes before the first frame of a client.
const PREAMBLE_BYTES: usize = 6;

/// A proxy in front of all servers. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    state: Arc<State>,
    ways: Mutex<HashMap<String, String>>,
    ports: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct State {
    random: Mutex<StdRng>,
    /// One frame in this many is the last of its connection; zero to cut none.
    one_in: AtomicU32,
    behind_requests: AtomicU32,
    in_place_of_answers: AtomicU32,
}

impl State {
    fn cuts(&self, count: &AtomicU32) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let cuts = one_in > 0 && locked(&self.random).random_ratio(1, one_in);
        count.fetch_add(u32::from(cuts), Ordering::Relaxed);
        cuts
    }
}

impl Proxy {
    pub(super) fn new(seed: u64) -> Arc<Proxy> {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        let (one_in, behind_requests, in_place_of_answers) = Default::default();
        let state = Arc::new(State { random, one_in, behind_requests, in_place_of_answers });
        Arc::new(Proxy { state, ways: Mutex::default(), ports: Mutex::default() })
    }

    /// From now on, cuts a connection at one frame in so many; at none if this is zero.
    pub(super) fn cut_one_in(&self, frames: u32) {
        self.state.one_in.store(frames, Ordering::Relaxed);
    }

    /// How many connections were cut behind a request, and how many in place of an answer.
    pub(super) fn cuts(&self) -> [u32; 2] {
        let State { behind_requests, in_place_of_answers, .. } = &*self.state;
        [behind_requests, in_place_of_answers].map(|count| count.load(Ordering::Relaxed))
    }

    /// The address at which this proxy stands for a server.
    pub(crate) fn way_to(&self, server: &str) -> String {
        let mut ways = locked(&self.ways);
        let way = ways.entry(server.to_owned()).or_insert_with(|| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.set_nonblocking(true).expect("a socket");
            let way = listener.local_addr().expect("an address").to_string();
            let listener = TcpListener::from_std(listener).expect("a socket");
            let pass = pass_all(listener, server.to_owned(), self.state.clone());
            locked(&self.ports).spawn(pass);
            way
        });
        way.clone()
    }
}

async fn pass_all(listener: TcpListener, server: String, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (server, state) = (server.clone(), state.clone());
        // An error is the end of one of the two connections, and then the other one ends, too.
        connections.spawn(async move { drop(pass(client, &server, &state).await) });
    }
}

/// Passes the frames of a connection in both directions, until one end closes or the proxy cuts it.
async fn pass(client: TcpStream, server: &str, state: &State) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let mut preamble = [0; PREAMBLE_BYTES];
        from_client.read_exact(&mut preamble).await?;
        to_server.write_all(&preamble).await?;
        let header = frame(&mut from_client).await?;
        to_server.write_all(&header).await?;
        loop {
            let request = frame(&mut from_client).await?;
            to_server.write_all(&request).await?;
            if state.cuts(&state.behind_requests) {
                return Ok(());
            }
        }
    };
    let answers = async {
        loop {
            let answer = frame(&mut from_server).await?;
            if state.cuts(&state.in_place_of_answers) {
                return Ok(());
            }
            to_client.write_all(&answer).await?;
        }
    };
    tokio::select! {
        end = requests => end,
        end = answers => end,
    }
}

/// Reads a frame, with its length in front.
async fn frame(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + length as usize, 0);
    from.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}
