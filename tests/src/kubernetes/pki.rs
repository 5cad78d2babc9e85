//! The certificates and keys of a control plane.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// An authority of its own, and files in one folder: `ca.crt`, `service-account.key`, `service-account.pub`, and
/// `<name>.crt` with `<name>.key` for each certificate.
pub(super) struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub(super) fn new(folder: &Path) -> Self {
        let mut params = named("control plane of a test", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = key();
        let certificate = params.self_signed(&key).expect("sign an authority");
        let pki = Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) };
        pki.write("ca.crt", &certificate.pem());
        // Tokens are signed with the one and checked with the other.
        let tokens = self::key();
        pki.write("service-account.key", &tokens.serialize_pem());
        pki.write("service-account.pub", &tokens.public_key_pem());
        pki
    }

    /// Where a file is, or will be.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Issues the certificate of a server on this machine.
    pub(super) fn server(&self, name: &str) {
        let mut params =
            CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned)).expect("names");
        params.distinguished_name = named(name, None).distinguished_name;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params);
    }

    /// Issues the certificate of a user, who may be in a group.
    pub(super) fn client(&self, name: &str, user: &str, group: Option<&str>) {
        let mut params = named(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params);
    }

    fn issue(&self, name: &str, mut params: CertificateParams) {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("sign a certificate");
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}.crt"), &certificate.pem());
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).expect("write a key or certificate");
    }
}

/// To Kubernetes the common name is the user and the organisation a group.
fn named(common: &str, organisation: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no alternative names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params
}

/// ECDSA on P-256: made in no time, and good for tokens, too.
fn key() -> KeyPair {
    KeyPair::generate().expect("make a key")
}
