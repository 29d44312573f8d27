//! Creates tables, loads rows by COPY, and creates indices and functions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures::SinkExt;
use percolator::Bytes;
use tokio_postgres::Client;

use crate::generate;
use crate::model::{Definition, Value};
use crate::{Error, Result, Scale};

use super::functions;
use super::pool::{connect, of_postgres};
use super::server::Server;

/// Bytes of a table that are sent at a time.
const COPY_BYTES: usize = 1 << 18;

pub(super) async fn load(server: &Server, scale: Scale) -> Result<()> {
    let client = connect(server.socket()).await?;
    for table in Definition::all() {
        client.batch_execute(&create(table)).await.map_err(of_postgres)?;
    }
    let mut buffers = BTreeMap::<&'static str, String>::new();
    for row in generate::rows(scale) {
        let (table, values) = row.values();
        let buffer = buffers.entry(table).or_default();
        line(buffer, &values);
        if buffer.len() >= COPY_BYTES {
            copy(&client, table, std::mem::take(buffer)).await?;
        }
    }
    for (table, buffer) in buffers {
        copy(&client, table, buffer).await?;
    }
    for table in Definition::all() {
        let key = format!("ALTER TABLE {} ADD PRIMARY KEY ({})", table.table, table.key.join(", "));
        client.batch_execute(&key).await.map_err(of_postgres)?;
    }
    let first = scale.trades() + 1;
    let numbers = format!("CREATE TABLE numbers AS SELECT {first}::bigint AS next");
    client.batch_execute(&numbers).await.map_err(of_postgres)?;
    for functions in functions::DEFINITIONS {
        client.batch_execute(functions).await.map_err(of_postgres)?;
    }
    client.batch_execute("VACUUM ANALYZE").await.map_err(of_postgres)?;
    Ok(())
}

fn create(table: &Definition) -> String {
    let fields = table.fields.iter().copied().flatten();
    let columns: Vec<String> =
        fields.map(|(name, sql)| format!("{} {sql} NOT NULL", column(name))).collect();
    format!("CREATE TABLE {} ({})", table.table, columns.join(", "))
}

/// A column's name, quoted because it may be a word of SQL.
fn column(name: &str) -> String {
    format!("\"{name}\"")
}

/// A line in the text format of COPY.
fn line(buffer: &mut String, values: &[Value<'_>]) {
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            buffer.push('\t');
        }
        // Writing to a string cannot fail.
        let _ = match value {
            Value::Number(number) => write!(buffer, "{number}"),
            Value::Flag(flag) => write!(buffer, "{}", if *flag { 't' } else { 'f' }),
            Value::Text(text) => {
                let text = text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
                write!(buffer, "{text}")
            }
        };
    }
    buffer.push('\n');
}

async fn copy(client: &Client, table: &str, lines: String) -> Result<()> {
    let statement = format!("COPY {table} FROM STDIN");
    let sink = client.copy_in::<_, Bytes>(&statement).await.map_err(of_postgres)?;
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::from(lines)).await.map_err(of_postgres)?;
    sink.finish().await.map_err(of_postgres)?;
    Ok::<(), Error>(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_format_of_copy() {
        let mut buffer = String::new();
        line(&mut buffer, &[Value::Number(-7), Value::Flag(true), Value::Text("a\tb\\c\nd")]);
        assert_eq!(buffer, "-7\tt\ta\\tb\\\\c\\nd\n");
    }

    #[test]
    fn there_are_33_tables() {
        assert_eq!(Definition::all().len(), 33);
    }
}
