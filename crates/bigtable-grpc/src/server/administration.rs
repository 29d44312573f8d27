//! Implements the service percolator.bigtable.v1.Administration: backups of the server's store.
//!
//! A request names a backup, and not a path: backups lie in one directory, which whoever starts
//! the server chooses. So a request can fill that directory's disk, and can write nowhere else.
//!
//! The backup runs on a thread of its own, and goes on if the client goes away.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bigtable::Error;
use bigtable_fjall::BackedUp;
use cluster_net::{Role, check_peer};
use tonic::{Request, Response, Status};

use super::status::of_engine;
use super::tables::Tables;
use crate::proto::extension::administration_server::{self, AdministrationServer};
use crate::proto::extension::{BackupRequest, BackupResponse};

/// Longest name of a backup, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The service.
#[derive(Debug)]
pub(crate) struct Administration {
    tables: Arc<Tables>,
    /// The directory of the backups. `None` if the server makes none on request.
    backups: Option<PathBuf>,
    /// Whether clients show certificates.
    certified: bool,
}

pub(crate) fn service(
    tables: Arc<Tables>,
    backups: Option<PathBuf>,
    certified: bool,
) -> AdministrationServer<Administration> {
    AdministrationServer::new(Administration { tables, backups, certified })
}

#[tonic::async_trait]
impl administration_server::Administration for Administration {
    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<BackupResponse>, Status> {
        if self.certified {
            check_peer(&request, &[Role::Admin])?;
        }
        let Some(backups) = &self.backups else {
            return Err(Status::failed_precondition(
                "the table server makes no backups on request: start it with --backups DIR, or run \
                 `percolator backup --data DIR` on its machine",
            ));
        };
        let to = directory(backups, &request.into_inner().name)?;
        let store = self.tables.store.clone();
        tracing::info!(target: "percolator::table", event = "backup_began", to = %to.display());
        let made = tokio::task::spawn_blocking(move || {
            let made = store.backup(&to);
            report(&to, &made);
            made
        });
        let made = made.await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(response(made.map_err(of_backup)?)))
    }
}

/// The directory of the backup with this name.
fn directory(backups: &Path, name: &str) -> Result<PathBuf, Status> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name.bytes().all(allowed);
    if is_name {
        return Ok(backups.join(name));
    }
    Err(Status::invalid_argument(format!(
        "{name:?} cannot name a backup on the table server: use letters, digits, `-`, `_` and `.`, \
         at most {NAME_BYTES_MAX} bytes, and begin with no `.`"
    )))
}

/// Logs the end of a backup, whether or not its client still waits.
fn report(to: &Path, made: &bigtable::Result<BackedUp>) {
    let to = to.display();
    match made {
        Ok(made) => tracing::info!(
            target: "percolator::table", event = "backed_up", %to,
            files = made.files, bytes = made.bytes, new_bytes = made.new_bytes,
        ),
        Err(error) => {
            tracing::warn!(target: "percolator::table", event = "backup_failed", %to, %error);
        }
    }
}

/// The status of a backup that failed. Nothing of it may be unknown to a client: an earlier
/// backup stays.
fn of_backup(error: Error) -> Status {
    match error {
        Error::Files { .. } | Error::InUse { .. } => Status::failed_precondition(error.to_string()),
        Error::Unknown { .. } => Status::unavailable(error.to_string()),
        error => of_engine(error),
    }
}

fn response(made: BackedUp) -> BackupResponse {
    BackupResponse {
        store: made.store.to_string(),
        made: made.made,
        files: made.files as u64,
        bytes: made.bytes,
        new_files: made.new_files as u64,
        new_bytes: made.new_bytes,
    }
}
