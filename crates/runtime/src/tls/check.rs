//! Whether a certificate may be used as it is going to be.

use rustls::{
    CertificateError, Error, RootCertStore, client::verify_server_cert_signed_by_trust_anchor,
    server::ParsedCertificate, server::danger::ClientCertVerifier,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use transponder_core::Timestamp;
use x509_parser::time::ASN1Time;

use super::{Usage, parse, provider};

/// Whether a chain can be read, and its first certificate is valid now and made for this usage.
pub(super) fn usage(chain: &[CertificateDer<'_>], usage: Usage) -> Result<(), String> {
    let (leaf, others) = chain.split_first().ok_or("holds no certificate")?;
    let leaf = parse(leaf)?;
    for (other, number) in others.iter().zip(2..) {
        parse(other).map_err(|problem| format!("has a certificate, number {number}, that {problem}"))?;
    }
    if !leaf.validity().is_valid() {
        let told = |time: ASN1Time| {
            Timestamp::from_second(time.timestamp())
                .map_or_else(|_| time.to_string(), |time| time.to_string())
        };
        let (from, to) = (told(leaf.validity().not_before), told(leaf.validity().not_after));
        return Err(format!("is not valid now, but from {from} to {to}"));
    }
    let constraints = leaf.basic_constraints().map_err(|e| format!("basic constraints: {e}"))?;
    if constraints.is_some_and(|constraints| constraints.value.ca) {
        return Err("is the certificate of an authority (CA:TRUE), which no peer takes for a server's".into());
    }
    let key_usage = leaf.key_usage().map_err(|e| format!("key usage: {e}"))?;
    if key_usage.is_some_and(|usage| !usage.value.digital_signature()) {
        return Err("must allow digital signatures in its key usage".into());
    }
    let extended = leaf.extended_key_usage().map_err(|e| format!("extended key usage: {e}"))?;
    let allowed = |server: bool, client: bool| match usage {
        Usage::Server => server,
        Usage::Mesh => server && client,
    };
    match extended {
        Some(eku) if !eku.value.any && !allowed(eku.value.server_auth, eku.value.client_auth) => {
            let needed = if usage == Usage::Mesh { "server and client" } else { "server" };
            Err(format!("must allow {needed} authentication in its extended key usage"))
        }
        _ => Ok(()),
    }
}

/// Whether a peer that trusts these authorities believes a chain: a server's by `roots`, a client's by `clients`.
pub(crate) fn believed(
    chain: &[CertificateDer<'_>],
    roots: &RootCertStore,
    clients: &dyn ClientCertVerifier,
) -> Result<(), String> {
    let (leaf, intermediates) = chain.split_first().ok_or("holds no certificate")?;
    let (now, algorithms) = (UnixTime::now(), provider().signature_verification_algorithms.all);
    ParsedCertificate::try_from(leaf)
        .and_then(|leaf| {
            verify_server_cert_signed_by_trust_anchor(&leaf, roots, intermediates, now, algorithms)
        })
        .and_then(|()| clients.verify_client_cert(leaf, intermediates, now))
        .map(drop)
        .map_err(|error| words(&error))
}

/// The same fault is always the same text: it is said once.
fn words(error: &Error) -> String {
    use CertificateError as Certificate;
    match error {
        // Authorities of one name and different keys are told apart by the signature.
        Error::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "was issued by none of the authorities that are trusted (ca.crt, ca-previous.crt)".into()
        }
        Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "was issued by an intermediate authority that is not valid now".into(),
        error => format!("is believed by no peer: {error}"),
    }
}
