//! Reads the pages of a server's own web server ("info server"): its process id, its version, and
//! its settings.
//!
//! HBase's protocol has no request for them. The status that the master sends has a version of the
//! master alone. The web server may be off, and then nothing can be read.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest page that is read. All settings of a server are about 300 KiB.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// A process as its JVM names it.
///
/// ```no_run
/// # async fn example() -> bigtable_hbase::Result<()> {
/// use bigtable_hbase::{HbaseOptions, HbaseProcess, HbaseStore};
/// let address = "hbase://127.0.0.1:16000/shop".parse()?;
/// let store = HbaseStore::connect(&address, HbaseOptions::default()).await?;
/// for server in store.cluster().await?.servers {
///     let HbaseProcess { id, host } = store.process(&server).await?;
///     println!("region server {} is process {id} of {host}", server.address);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HbaseProcess {
    /// Its number.
    pub id: u32,
    /// The name of its machine, as the machine itself knows it.
    pub host: String,
}

/// Reads the number of the server's process, and its machine.
pub(crate) async fn process(address: &str, timeout: Duration) -> Result<HbaseProcess, String> {
    let page = page(address, "/jmx?qry=java.lang:type=Runtime", timeout).await?;
    process_in(&page).ok_or_else(|| format!("http://{address}/jmx has no process id"))
}

/// Reads the version of a region server.
pub(crate) async fn version(address: &str, timeout: Duration) -> Result<String, String> {
    let page = page(address, "/rs-status", timeout).await?;
    version_in(&page).ok_or_else(|| format!("http://{address}/rs-status has no version"))
}

/// Reads all settings of the server, defaults included.
pub(crate) async fn settings(
    address: &str,
    timeout: Duration,
) -> Result<BTreeMap<String, String>, String> {
    let settings = settings_in(&page(address, "/conf", timeout).await?);
    if settings.is_empty() {
        Err(format!("http://{address}/conf has no settings"))
    } else {
        Ok(settings)
    }
}

async fn page(address: &str, path: &str, timeout: Duration) -> Result<String, String> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // With this version, the server sends the page in one piece, and then closes.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let failed = |why: &str| format!("http://{address}{path}: {why}");
    let answer = tokio::time::timeout(timeout, exchange)
        .await
        .map_err(|_| failed("no answer in time"))?
        .map_err(|error| failed(&error.to_string()))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed("no page"))?;
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(failed(&format!("status {}", status.unwrap_or("unknown")))),
    }
}

/// The process in the description of a JVM: `"Name" : "4711@host"`.
fn process_in(page: &str) -> Option<HbaseProcess> {
    let names = page.split("\"Name\"").skip(1);
    let mut found = names.filter_map(|rest| {
        let value = rest.split('"').nth(1)?;
        let (id, host) = value.split_once('@')?;
        Some(HbaseProcess { id: id.parse().ok()?, host: host.to_owned() })
    });
    found.next()
}

/// The version in a table of HTML: `<td>HBase Version</td> <td>2.6.1, revision=..</td>`.
fn version_in(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("<td>HBase Version</td>")?;
    let (_, value) = rest.split_once("<td>")?;
    let version = value.split([',', '<']).next()?.trim();
    (!version.is_empty()).then(|| version.to_owned())
}

/// The settings in an XML document of properties.
fn settings_in(page: &str) -> BTreeMap<String, String> {
    let between = |text: &str, tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        Some(rest.split_once(&format!("</{tag}>"))?.0.to_owned())
    };
    let properties = page.split("<property>").skip(1);
    let pairs = properties.filter_map(|one| {
        let one = one.split("</property>").next()?;
        Some((between(one, "name")?, between(one, "value")?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_or_nothing_is_found() {
        let page =
            r#"{ "beans" : [ { "name" : "java.lang:type=Runtime", "Name" : "4711@host" } ] }"#;
        let process = HbaseProcess { id: 4711, host: "host".to_owned() };
        assert_eq!(process_in(page), Some(process));
        assert_eq!(process_in(r#"{ "Name" : "none" }"#), None);
        let page = "<tr>\n  <td>HBase Version</td>\n  <td>2.6.1-hadoop3, revision=Unknown</td>";
        assert_eq!(version_in(page).as_deref(), Some("2.6.1-hadoop3"));
        assert_eq!(version_in("<td>HBase Version</td><td></td>"), None);
        assert_eq!(version_in("<td>JVM Version</td><td>17</td>"), None);
        let page = "<configuration><property><name>a</name><value>1</value></property>\n\
                    <property><name>b</name><value/></property></configuration>";
        assert_eq!(settings_in(page), BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    }

    #[tokio::test]
    async fn a_page_that_is_refused_is_named() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let answering = async {
            let (mut stream, _) = server.accept().await.unwrap();
            // Unread bytes would reset the connection.
            let mut request =
                vec![0; format!("GET /conf HTTP/1.0\r\nHost: {address}\r\n\r\n").len()];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\nno").await.unwrap();
        };
        let (found, ()) = tokio::join!(settings(&address, Duration::from_secs(9)), answering);
        assert_eq!(found.unwrap_err(), format!("http://{address}/conf: status 403"));
    }
}
