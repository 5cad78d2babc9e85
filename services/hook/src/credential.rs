//! Where the relay token comes from: a mounted file, and until that is there, the Secret itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use url::Url;

use crate::{
    error::Problem,
    kube::{SECRET, SecretReader},
    token::{Token, TokenError},
    trust::Roots,
};

/// A token, and what its Secret says of its use.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The relay token.
    pub token: Token,
    /// The only origin that the token may go to.
    pub origin: Option<Url>,
    /// The CAs of the relay.
    pub roots: Option<Roots>,
    place: String,
}

/// Why there is no credential.
#[derive(Debug)]
pub enum NoCredential {
    /// Not yet; says why, place by place.
    Yet(String),
    /// What is there cannot be used, and waiting would not mend it.
    Unusable(Problem),
}

/// The places, asked in turns.
#[derive(Debug)]
pub struct Wallet {
    file: Option<PathBuf>,
    secret: Option<SecretReader>,
}

impl Credential {
    /// Refuses an address that the Secret does not allow: `RELAY_URL` comes from the app's own repository, and whoever
    /// edits that must not have the cluster's token sent elsewhere.
    ///
    /// # Errors
    /// Names both origins.
    pub fn check_origin(&self, url: &Url) -> Result<(), Problem> {
        match &self.origin {
            Some(origin) if origin.origin() != url.origin() => Err(Problem::new(
                "RELAY_URL",
                format!(
                    "has the origin {}, and the relay-origin of {} is {}: the token was not sent",
                    url.origin().ascii_serialization(),
                    self.place,
                    origin.origin().ascii_serialization(),
                ),
            )),
            _ => Ok(()),
        }
    }

    fn new(place: &str, token: Token, origin: Option<Vec<u8>>, ca: Option<Vec<u8>>) -> Result<Self, Problem> {
        let filled = |bytes: Option<Vec<u8>>| bytes.filter(|bytes| !bytes.trim_ascii().is_empty());
        let origin = filled(origin)
            .map(|bytes| read_origin(&bytes))
            .transpose()
            .map_err(|what| Problem::new(format!("relay-origin of {place}"), what))?;
        let ca_name = format!("ca.crt of {place}");
        let roots = filled(ca)
            .map(|pem| Roots::from_pem(&pem).map(|roots| roots.named(&ca_name)))
            .transpose()
            .map_err(|error| Problem::new(&ca_name, error.to_string()))?;
        Ok(Self { token, origin, roots, place: place.to_owned() })
    }
}

/// An origin that cannot be read forbids every address: it was written to forbid some.
fn read_origin(bytes: &[u8]) -> Result<Url, &'static str> {
    let what = "must be an origin such as https://relay.example:8443";
    let url: Url = std::str::from_utf8(bytes).map_err(|_| what)?.trim().parse().map_err(|_| what)?;
    if url.origin().is_tuple() { Ok(url) } else { Err(what) }
}

impl Wallet {
    /// The places to ask.
    #[must_use]
    pub fn new(file: Option<PathBuf>, secret: Option<SecretReader>) -> Self {
        Self { file, secret }
    }

    /// The first credential whose token is none of `refused`.
    ///
    /// # Errors
    /// When no place has one.
    pub fn find(&self, refused: &[Token], within: Duration) -> Result<Credential, NoCredential> {
        let file = || self.file.as_deref().map(from_file);
        let secret = || self.secret.as_ref().map(|secret| from_secret(secret, within));
        let places: [&dyn Fn() -> Option<Result<Credential, NoCredential>>; 2] = [&file, &secret];
        let mut reasons = Vec::new();
        for place in places {
            match place() {
                None => {}
                Some(Ok(credential)) if !refused.contains(&credential.token) => return Ok(credential),
                Some(Ok(credential)) => reasons.push(format!("the token of {} is refused", credential.place)),
                Some(Err(NoCredential::Yet(reason))) => reasons.push(reason),
                Some(Err(unusable)) => return Err(unusable),
            }
        }
        Err(NoCredential::Yet(reasons.join("; ")))
    }
}

/// The file of the token, and the other keys of the Secret where it is mounted as a directory.
fn from_file(path: &Path) -> Result<Credential, NoCredential> {
    let place = format!("RELAY_TOKEN_FILE {}", path.display());
    let read = |path: &Path| match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NoCredential::Yet(format!("{}: {error}", path.display()))),
    };
    let token = read(path)?.ok_or_else(|| NoCredential::Yet(format!("{place} is not there")))?;
    let (origin, ca) = (read(&path.with_file_name("relay-origin"))?, read(&path.with_file_name("ca.crt"))?);
    credential(&place, &token, origin, ca)
}

fn from_secret(secret: &SecretReader, within: Duration) -> Result<Credential, NoCredential> {
    let place = format!("Secret {SECRET}");
    let mut keys = secret.read(within).map_err(|error| NoCredential::Yet(error.to_string()))?;
    let token = keys.remove("token").ok_or_else(|| NoCredential::Yet(format!("{place} has no key token")))?;
    credential(&place, &token, keys.remove("relay-origin"), keys.remove("ca.crt"))
}

fn credential(
    place: &str,
    token: &[u8],
    origin: Option<Vec<u8>>,
    ca: Option<Vec<u8>>,
) -> Result<Credential, NoCredential> {
    let token = match Token::parse(token) {
        Ok(token) => token,
        Err(TokenError::Empty) => return Err(NoCredential::Yet(format!("the token of {place} is empty"))),
        Err(error) => {
            return Err(NoCredential::Unusable(Problem::new(
                format!("the token of {place}"),
                error.to_string(),
            )));
        }
    };
    Credential::new(place, token, origin, ca).map_err(NoCredential::Unusable)
}
