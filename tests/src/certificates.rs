//! Certificates that the product would never make.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The one that the product made: `<name>.crt` and `<name>.key` in a directory.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn of(directory: &Path, name: &str) -> Self {
        let read =
            |file: &str| fs::read_to_string(directory.join(format!("{name}.{file}"))).expect("an authority");
        let key = KeyPair::from_pem(&read("key")).expect("a private key");
        Self { issuer: Issuer::from_ca_cert_pem(&read("crt"), key).expect("the certificate of an authority") }
    }

    /// A new one that nobody trusts.
    ///
    /// # Panics
    ///
    /// Never, with these parameters.
    #[must_use]
    pub fn foreign() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self { issuer: Issuer::new(params, KeyPair::generate().expect("a key")) }
    }

    /// Issues a certificate for this machine with these URI names, valid until `left` from now, or expired yesterday.
    /// Answers the path of `<name>.crt`; `<name>.key` lies beside it.
    ///
    /// # Panics
    ///
    /// When a name is none, or the file cannot be written.
    pub fn issue(&self, directory: &Path, name: &str, uris: &[&str], left: Option<Duration>) -> PathBuf {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
        params
            .subject_alt_names
            .extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI"))));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now();
        params.not_before = (now - 30 * DAY).into();
        params.not_after = left.map_or(now - DAY, |left| now + left).into();
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("sign a certificate");
        let path = directory.join(format!("{name}.crt"));
        fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).expect("write a key");
        fs::write(&path, certificate.pem()).expect("write a certificate");
        path
    }
}
