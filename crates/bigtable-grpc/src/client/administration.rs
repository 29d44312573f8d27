//! Asks a server of this project for what only its administrator may have: backups.

use bigtable::{Error, Result};
use bigtable_fjall::BackedUp;
use tonic::Code;

use super::channel::routing;
use super::status::of_read;
use super::store::GrpcStore;
use crate::proto::extension::BackupRequest;

impl GrpcStore {
    /// Asks the server for a backup of its store, on its own machine. `name` is a directory in
    /// the server's directory of backups ([`ServeOptions::backups`](crate::ServeOptions::backups)).
    /// It is empty, does not exist yet, or holds an earlier backup of the same store. Then only
    /// new contents are written.
    ///
    /// With certificates, the client's must name `admin.percolator.internal`. The call has no
    /// deadline, because it takes as long as reading all of the store.
    ///
    /// ```no_run
    /// # async fn example() -> bigtable::Result<()> {
    /// let address = "bigtable://127.0.0.1:8086/project/instance".parse()?;
    /// let store = bigtable_grpc::GrpcStore::open(&address, Default::default()).await?;
    /// let made = store.backup("weekly").await?;
    /// println!("{} files, {} bytes", made.files, made.bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// * `InvalidRequest` if the server makes no backups, or if `name` is no name of a directory.
    ///   Also if a file of the store is damaged, the backup's directory cannot be used, or another
    ///   backup is being written there. The message says which. An earlier backup stays.
    /// * `Refused` if the certificate does not name the role.
    /// * `Unavailable` if the server does not answer. It may still make the backup.
    ///
    /// # Cancellation
    /// The server goes on with the backup.
    pub async fn backup(&self, name: &str) -> Result<BackedUp> {
        let routing = routing(&[("name", self.instance())])?;
        let request = BackupRequest { name: name.to_owned() };
        let mut request = self.channels().request(&routing, request);
        request.metadata_mut().remove("grpc-timeout");
        let answer = self.channels().administration().backup(request).await;
        let made = answer.map_err(|status| match status.code() {
            Code::Unimplemented => Error::invalid(
                "the server is no table server of this project, or an older one: it makes no \
                 backups on request",
            ),
            _ => of_read(&status),
        })?;
        let made = made.into_inner();
        let store = made.store.parse().map_err(|_| Error::Unavailable {
            why: format!("the server names its store {:?}, which is no id", made.store),
        })?;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(BackedUp {
            store,
            made: made.made,
            files: count(made.files),
            bytes: made.bytes,
            new_files: count(made.new_files),
            new_bytes: made.new_bytes,
        })
    }
}
