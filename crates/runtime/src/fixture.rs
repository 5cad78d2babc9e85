//! Certificates for the tests of this crate.

use std::{fs, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use transponder_core::ServiceName;

use crate::mesh::MeshConfig;

/// An authority, and its certificate as PEM.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Writes `<service>.crt` and `<service>.key`, after a change of what would be right.
    pub(crate) fn issue(
        &self,
        directory: &Path,
        service: ServiceName,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        let id = service.spiffe_id(&MeshConfig::default().trust_domain);
        params.subject_alt_names.push(SanType::URI(id.try_into().unwrap()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(directory.join(format!("{service}.crt")), certificate.pem()).unwrap();
        fs::write(directory.join(format!("{service}.key")), key.serialize_pem()).unwrap();
    }
}
