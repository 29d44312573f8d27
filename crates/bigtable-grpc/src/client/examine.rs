//! Examines a server and the tables of its instance.

use bigtable::{Finding, Result, Store, Verdict};

use super::channel::routing;
use super::store::{GrpcStore, check_families};
use crate::server::rules::belongs_to_percolator;

impl GrpcStore {
    /// Examines the server and the families of all tables. The application profile was read when
    /// the store was opened, if the server shows it.
    ///
    /// ```no_run
    /// # async fn example() -> bigtable::Result<()> {
    /// let address = "bigtable://127.0.0.1:8086/project/instance".parse()?;
    /// let store = bigtable_grpc::GrpcStore::open(&address, Default::default()).await?;
    /// for finding in store.examine().await? {
    ///     println!("{}: {}", finding.about, finding.found);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of reads.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        let mut findings = vec![of_profile(self.profile_unread.as_deref())];
        if let Some(life) = self.request_life_max() {
            let found = format!("{life:?} at most; garbage collection waits for it");
            findings.push(Finding::sound("life of a request", found));
        }
        let mut looked = 0;
        for name in &self.table_names().await? {
            let path = self.table_name(name);
            let there = self.look(&path, &routing(&[("name", &path)])?).await?.unwrap_or_default();
            // Tables of other programs may have rules.
            if !belongs_to_percolator(name, |family| there.contains_key(family)) {
                continue;
            }
            looked += 1;
            let families: Vec<String> = there.keys().cloned().collect();
            if let Err(error) = check_families(name, &families, &there) {
                let help = "mend the table as described, then run this command again";
                findings.push(Finding::wrong(format!("table {name}"), error.to_string(), help));
            }
        }
        let found =
            format!("{looked} are Percolator's, and were searched for garbage collection rules");
        findings.push(Finding::sound("tables", found));
        Ok(findings)
    }
}

/// Judges the application profile, which is sound if it could be read.
fn of_profile(unread: Option<&str>) -> Finding {
    let about = "application profile";
    let Some(why) = unread else {
        return Finding::sound(
            about,
            "it routes to one cluster, and allows single-row transactions",
        );
    };
    let help = "check that it routes to one cluster and allows single-row transactions, or grant \
                bigtable.appProfiles.get; the emulator has no profiles and needs none";
    Finding { verdict: Verdict::Unknown, help: Some(help.to_owned()), ..Finding::sound(about, why) }
}
