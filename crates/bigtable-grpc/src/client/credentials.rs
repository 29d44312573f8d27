//! Fetches tokens for Cloud Bigtable: when the first is needed, and again before one expires.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bigtable::Error;
use bigtable::sync::Turns;
use gcp_auth::TokenProvider;
use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Scopes of a token: data, and tables with their families.
const SCOPES: [&str; 2] = [
    "https://www.googleapis.com/auth/bigtable.data",
    "https://www.googleapis.com/auth/bigtable.admin",
];
/// Time before its expiry at which a token is replaced.
const MARGIN: Duration = Duration::from_secs(60);
/// Longest time for fetching a token.
const PATIENCE: Duration = Duration::from_secs(20);
const REMEDY: &str = "run `gcloud auth application-default login`, or let \
                      GOOGLE_APPLICATION_CREDENTIALS name the key file of a service account";

/// A token. Its text appears in no debug output.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) valid_for: Duration,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token for {:?}", self.valid_for)
    }
}

/// The source of tokens: Google, or a test.
#[async_trait]
pub(crate) trait TokenSource: Send + Sync {
    /// Fetches a token. The error says why there is none.
    async fn token(&self) -> Result<Token, String>;
}

/// Tokens from where Google's own clients look: a service account's file, the user's
/// credentials, the machine's.
struct Google(Arc<dyn TokenProvider>);

#[async_trait]
impl TokenSource for Google {
    async fn token(&self) -> Result<Token, String> {
        let token = self.0.token(&SCOPES).await.map_err(|error| causes(&error))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = u64::try_from(token.expires_at().timestamp()).unwrap_or(0);
        let valid_for = Duration::from_secs(until).saturating_sub(now);
        Ok(Token { text: token.as_str().to_owned(), valid_for })
    }
}

/// The client got no token, so it did not send the request.
#[derive(Debug, thiserror::Error)]
#[error("no credentials for Cloud Bigtable ({why}): {REMEDY}")]
pub(crate) struct NoCredentials {
    why: String,
}

/// The current token.
#[derive(Clone)]
struct Held {
    header: HeaderValue,
    renew: Instant,
    end: Instant,
}

/// Supplies the header that authorizes a request.
pub(crate) struct Credentials {
    tokens: Arc<Tokens>,
    /// Locked by the call that replaces a token which is still valid.
    renewing: Mutex<()>,
    /// The calls that fetch a token. A call that its program does not poll holds up no other.
    fetching: Turns,
}

/// The source of tokens, and the token that it gave last.
struct Tokens {
    source: Box<dyn TokenSource>,
    held: RwLock<Option<Held>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn new(source: impl TokenSource + 'static) -> Self {
        let tokens = Arc::new(Tokens { source: Box::new(source), held: RwLock::default() });
        Credentials { tokens, renewing: Mutex::default(), fetching: Turns::default() }
    }

    /// Finds this process's credentials for Google.
    pub(crate) async fn google() -> Result<Self, Error> {
        let none = |why: String| Error::invalid(NoCredentials { why }.to_string());
        match timeout(PATIENCE, gcp_auth::provider()).await {
            Ok(Ok(provider)) => Ok(Credentials::new(Google(provider))),
            Ok(Err(error)) => Err(none(causes(&error))),
            Err(_) => Err(none(format!("none were found within {PATIENCE:?}"))),
        }
    }

    /// Returns the header, with a token that is still valid for a while. While one call fetches
    /// the next token, the others use the current one.
    pub(crate) async fn header(&self) -> Result<HeaderValue, NoCredentials> {
        let now = Instant::now();
        let _renewing = match self.tokens.held() {
            Some(held) if now < held.renew => return Ok(held.header),
            Some(held) if now < held.end => match self.renewing.try_lock() {
                Ok(guard) => Some(guard),
                Err(_) => return Ok(held.header),
            },
            _ => None,
        };
        self.fetching.run(self.tokens.clone().fetch()).await
    }
}

impl Tokens {
    fn held(&self) -> Option<Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the header, and fetches a token unless the held one lasts for a while.
    async fn fetch(self: Arc<Self>) -> Result<HeaderValue, NoCredentials> {
        let held = self.held();
        if let Some(held) = held.as_ref().filter(|held| Instant::now() < held.renew) {
            return Ok(held.header.clone());
        }
        let fetched = timeout(PATIENCE, self.source.token()).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("no token within {PATIENCE:?}")));
        match fetched.and_then(hold) {
            Ok(new) => {
                let header = new.header.clone();
                *self.held.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
                Ok(header)
            }
            Err(why) => match held.filter(|held| Instant::now() < held.end) {
                Some(held) => {
                    tracing::warn!(%why, "the token for Cloud Bigtable could not be renewed yet");
                    Ok(held.header)
                }
                None => Err(NoCredentials { why }),
            },
        }
    }
}

fn hold(token: Token) -> Result<Held, String> {
    let header = format!("Bearer {}", token.text).parse();
    let mut header: HeaderValue = header.map_err(|_| "the token is not text".to_owned())?;
    // Sensitive: left out of debug output and out of HTTP/2's compression tables.
    header.set_sensitive(true);
    let end = Instant::now() + token.valid_for;
    // A token with a lifetime below the margin is used for its whole lifetime.
    let renew = end.checked_sub(MARGIN).unwrap_or(end);
    Ok(Held { header, renew, end })
}

/// The text of an error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tonic::Status;

    /// A source that counts its tokens, and fails if the flag is set.
    #[derive(Default)]
    struct Counter {
        given: AtomicUsize,
        fails: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl TokenSource for Arc<Counter> {
        async fn token(&self) -> Result<Token, String> {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.fails.load(Ordering::SeqCst) {
                return Err("the metadata server is away".to_owned());
            }
            let n = self.given.fetch_add(1, Ordering::SeqCst);
            Ok(Token { text: format!("secret-{n}"), valid_for: Duration::from_secs(3600) })
        }
    }

    async fn text(credentials: &Credentials) -> String {
        credentials.header().await.unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_fetched_once_and_again_before_it_ends() {
        let source = Arc::new(Counter::default());
        let credentials = Credentials::new(source.clone());
        let (a, b) = tokio::join!(text(&credentials), text(&credentials));
        assert_eq!((a.as_str(), b.as_str()), ("Bearer secret-0", "Bearer secret-0"));
        tokio::time::advance(Duration::from_secs(3600) - MARGIN - Duration::from_secs(1)).await;
        assert_eq!(text(&credentials).await, "Bearer secret-0");
        tokio::time::advance(Duration::from_secs(2)).await;
        // The first caller fetches a token; the second does not wait for it.
        let (a, b) = tokio::join!(text(&credentials), text(&credentials));
        assert_eq!((a.as_str(), b.as_str()), ("Bearer secret-1", "Bearer secret-0"));
    }

    /// For example, the future of a branch of `select!` while another branch awaits (H77).
    #[tokio::test(start_paused = true)]
    async fn h77_a_request_that_is_not_polled_holds_up_no_other() {
        let credentials = Credentials::new(Arc::new(Counter::default()));
        let mut unpolled = Box::pin(text(&credentials));
        assert!(futures::poll!(&mut unpolled).is_pending());
        let second = timeout(Duration::from_secs(60), text(&credentials)).await;
        assert_eq!(second.expect("a token"), "Bearer secret-0");
        assert_eq!(unpolled.await, "Bearer secret-0");
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_is_reported_once_the_last_token_has_ended() {
        let source = Arc::new(Counter::default());
        let credentials = Credentials::new(source.clone());
        text(&credentials).await;
        source.fails.store(true, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(3600) - MARGIN).await;
        assert_eq!(text(&credentials).await, "Bearer secret-0");
        tokio::time::advance(MARGIN).await;
        let refused = credentials.header().await.unwrap_err();
        let told = refused.to_string();
        assert!(told.contains("metadata server is away") && told.contains("gcloud auth"), "{told}");
        let status = Status::from_error(refused.into());
        assert!(super::super::status::was_not_sent(&status));
        source.fails.store(false, Ordering::SeqCst);
        assert_eq!(text(&credentials).await, "Bearer secret-1");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_not_shown() {
        let credentials = Credentials::new(Arc::new(Counter::default()));
        let header = credentials.header().await.unwrap();
        let token = Token { text: "secret-0".to_owned(), valid_for: MARGIN };
        let shown = format!("{header:?} {token:?} {credentials:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
