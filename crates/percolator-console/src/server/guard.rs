//! Checks the rules that each request must pass before its route runs.
//!
//! | threat | rule |
//! |---|---|
//! | a name that points to this machine (DNS rebinding) | `Host` must be ours, else 421 |
//! | a page of another origin | a POST is JSON, with our `Origin`, `Sec-Fetch-Site: same-origin` |
//! | another user or program of this machine | a token, which no cookie carries |
//! | a flood | 16 requests at a time |
//!
//! Health needs neither a known `Host` nor a token, and reports its state alone. Metrics need no
//! token on loopback, because their labels hold no keys. Files of the console hold no data and need
//! no token.

use axum::http::{HeaderMap, Method, StatusCode, header};

/// The class of a route, by the data that it returns or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `/healthz`, `/readyz`.
    Health,
    /// `/metrics`.
    Metrics,
    /// Files of the console.
    Asset,
    /// The search page, which holds data only where searching needs no token.
    Search,
    /// Data of the database.
    Read,
    /// A change.
    Write,
}

/// The rules of a console.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Names and addresses, with their port, under which the console is reached.
    pub(crate) hosts: Vec<String>,
    /// The token.
    pub(crate) token: String,
    /// Whether reads need no token.
    pub(crate) open_reads: bool,
    /// Whether searching needs no token.
    pub(crate) open_search: bool,
    /// Whether every change is refused.
    pub(crate) read_only: bool,
    /// Whether the console listens on loopback only.
    pub(crate) loopback: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The `Host` is not ours.
    Host,
    /// The route has another method.
    Method,
    /// A POST from a page of another origin.
    Origin,
    /// A POST whose body is not JSON.
    ContentType,
    /// No token, or a wrong one.
    Token,
    /// The console changes nothing.
    ReadOnly,
}

impl Refusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Refusal::Host => StatusCode::MISDIRECTED_REQUEST,
            Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Origin | Refusal::ReadOnly => StatusCode::FORBIDDEN,
            Refusal::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::Token => StatusCode::UNAUTHORIZED,
        }
    }

    pub(crate) fn text(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Host => (
                "this console does not serve this host name",
                "use the URL that was printed when it started, or start it with --console-host NAME:PORT",
            ),
            Refusal::Method => (
                "this route does not accept this method",
                "read with GET, and send changes with POST",
            ),
            Refusal::Origin => (
                "a page of another origin has sent this request",
                "send it from the console's own page",
            ),
            Refusal::ContentType => {
                ("the body is not JSON", "send it with Content-Type: application/json")
            }
            Refusal::Token => (
                "the token is missing or wrong",
                "open the URL that was printed when the console started, or send the token of \
                 console.token in the directory of the store as Authorization: Bearer TOKEN",
            ),
            Refusal::ReadOnly => {
                ("this console changes nothing", "start it without --read-only to make changes")
            }
        }
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    // An honest client sends only one value of each of these headers.
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    if all.next().is_some() { Some("") } else { Some(first) }
}

impl Policy {
    /// Checks whether a request may pass.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub(crate) fn admit(
        &self,
        class: Class,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        if class == Class::Health {
            return if is_reading(method) { Ok(()) } else { Err(Refusal::Method) };
        }
        let host = text(headers, header::HOST).ok_or(Refusal::Host)?;
        if !self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)) {
            return Err(Refusal::Host);
        }
        if class == Class::Write {
            self.admit_write(method, headers, host)?;
        } else if !is_reading(method) {
            return Err(Refusal::Method);
        }
        let open = match class {
            Class::Health | Class::Asset | Class::Search => true,
            Class::Metrics => self.loopback,
            Class::Read => self.open_reads,
            Class::Write => false,
        };
        if open || self.knows_token(headers) { Ok(()) } else { Err(Refusal::Token) }
    }

    fn admit_write(&self, method: &Method, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
        if method != Method::POST {
            return Err(Refusal::Method);
        }
        if let Some(origin) = text(headers, header::ORIGIN) {
            let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !of.is_some_and(|of| of.eq_ignore_ascii_case(host)) {
                return Err(Refusal::Origin);
            }
        }
        let site = text(headers, header::HeaderName::from_static("sec-fetch-site"));
        if site.is_some_and(|site| site != "same-origin") {
            return Err(Refusal::Origin);
        }
        let kind = text(headers, header::CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::ContentType);
        }
        if self.read_only { Err(Refusal::ReadOnly) } else { Ok(()) }
    }

    /// Whether the search page may hold data.
    pub(crate) fn opens_search(&self) -> bool {
        self.open_reads || self.open_search
    }

    fn knows_token(&self, headers: &HeaderMap) -> bool {
        let given = text(headers, header::AUTHORIZATION).unwrap_or_default();
        let Some(given) = given.strip_prefix("Bearer ") else { return false };
        // Hashes compare in constant time, so that the time of an answer reveals nothing of the
        // token.
        blake3::hash(given.as_bytes()) == blake3::hash(self.token.as_bytes())
    }
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy {
            hosts: vec!["127.0.0.1:7090".into(), "localhost:7090".into()],
            token: "secret".into(),
            open_reads: false,
            open_search: false,
            read_only: false,
            loopback: true,
        }
    }

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7090");
    const TOKEN: (&str, &str) = ("authorization", "Bearer secret");
    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn reads_need_our_host_and_the_token() {
        let admit = |given: &[(&'static str, &str)]| {
            policy().admit(Class::Read, &Method::GET, &headers(given))
        };
        assert_eq!(admit(&[HOST, TOKEN]), Ok(()));
        assert_eq!(admit(&[("host", "LOCALHOST:7090"), TOKEN]), Ok(()));
        assert_eq!(admit(&[TOKEN]), Err(Refusal::Host));
        assert_eq!(admit(&[HOST, HOST, TOKEN]), Err(Refusal::Host));
        for foreign in
            ["evil.example", "127.0.0.1", "127.0.0.1:7091", "127.0.0.1:7090.evil.example"]
        {
            assert_eq!(admit(&[("host", foreign), TOKEN]), Err(Refusal::Host), "{foreign}");
        }
        for wrong in ["secret", "Bearer secre", "Bearer secret ", "Basic secret", ""] {
            assert_eq!(admit(&[HOST, ("authorization", wrong)]), Err(Refusal::Token), "{wrong:?}");
        }
        assert_eq!(admit(&[HOST]), Err(Refusal::Token));
        let open = Policy { open_reads: true, ..policy() };
        assert_eq!(open.admit(Class::Read, &Method::GET, &headers(&[HOST])), Ok(()));
        assert_eq!(
            open.admit(Class::Read, &Method::POST, &headers(&[HOST, TOKEN, JSON])),
            Err(Refusal::Method)
        );
    }

    #[test]
    fn writes_need_json_our_origin_and_the_token_even_where_reads_are_open() {
        let open = Policy { open_reads: true, ..policy() };
        let admit = |method: Method, given: &[(&'static str, &str)]| {
            open.admit(Class::Write, &method, &headers(given))
        };
        let post = |given: &[(&'static str, &str)]| admit(Method::POST, given);
        assert_eq!(post(&[HOST, TOKEN, JSON]), Ok(()));
        assert_eq!(post(&[HOST, TOKEN, JSON, ("origin", "http://127.0.0.1:7090")]), Ok(()));
        assert_eq!(post(&[HOST, JSON]), Err(Refusal::Token));
        assert_eq!(admit(Method::GET, &[HOST, TOKEN, JSON]), Err(Refusal::Method));
        assert_eq!(admit(Method::PUT, &[HOST, TOKEN, JSON]), Err(Refusal::Method));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:7091", "file://"] {
            let foreign = post(&[HOST, TOKEN, JSON, ("origin", origin)]);
            assert_eq!(foreign, Err(Refusal::Origin), "{origin}");
        }
        // Another name of this console is still another origin.
        assert_eq!(
            post(&[HOST, TOKEN, JSON, ("origin", "http://localhost:7090")]),
            Err(Refusal::Origin)
        );
        for site in ["cross-site", "same-site", "none"] {
            assert_eq!(post(&[HOST, TOKEN, JSON, ("sec-fetch-site", site)]), Err(Refusal::Origin));
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
            assert_eq!(
                post(&[HOST, TOKEN, ("content-type", kind)]),
                Err(Refusal::ContentType),
                "{kind}"
            );
        }
        let read_only = Policy { read_only: true, ..policy() };
        assert_eq!(
            read_only.admit(Class::Write, &Method::POST, &headers(&[HOST, TOKEN, JSON])),
            Err(Refusal::ReadOnly)
        );
    }

    #[test]
    fn health_needs_nothing_and_metrics_a_token_beyond_loopback() {
        let admit = |policy: &Policy, class, given: &[(&'static str, &str)]| {
            policy.admit(class, &Method::GET, &headers(given))
        };
        let far = Policy { loopback: false, ..policy() };
        assert_eq!(admit(&far, Class::Health, &[("host", "evil.example")]), Ok(()));
        assert_eq!(
            far.admit(Class::Health, &Method::POST, &HeaderMap::new()),
            Err(Refusal::Method)
        );
        assert_eq!(admit(&policy(), Class::Metrics, &[HOST]), Ok(()));
        assert_eq!(admit(&far, Class::Metrics, &[HOST]), Err(Refusal::Token));
        assert_eq!(admit(&far, Class::Metrics, &[HOST, TOKEN]), Ok(()));
        assert_eq!(admit(&far, Class::Asset, &[HOST]), Ok(()));
        assert_eq!(admit(&far, Class::Asset, &[("host", "evil.example")]), Err(Refusal::Host));
    }
}
