//! TLS with the certificates of the system and of `ca_file`. They are read for each connection:
//! connections are rare, and a renewed file is in force at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("reading the certificates of ca_file {}", path.display())]
    CaFile {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("ca_file {} has no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("ca_file {} has a certificate that cannot be used", path.display())]
    Certificate {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error(
        "the system has no certificates of authorities: install ca-certificates, or set ca_file"
    )]
    NoRoots,
    #[error("setting up TLS")]
    Setup(#[source] rustls::Error),
    #[error("reading the certificates: the reader has ended")]
    Lost,
}

/// Certificates of authorities.
pub(crate) async fn authorities(
    ca_file: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let ca_file = ca_file.map(Path::to_owned);
    // The disk may not respond.
    tokio::task::spawn_blocking(move || read_authorities(ca_file.as_deref()))
        .await
        .unwrap_or(Err(TlsError::Lost))
}

fn read_authorities(ca_file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut certificates = rustls_native_certs::load_native_certs().certs;
    if let Some(path) = ca_file {
        let failed = |source| TlsError::CaFile { path: path.to_owned(), source };
        let before = certificates.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(failed)? {
            let certificate = certificate.map_err(failed)?;
            // The system may have some that rustls cannot use; a person's choice must be usable.
            RootCertStore::empty()
                .add(certificate.clone())
                .map_err(|source| TlsError::Certificate { path: path.to_owned(), source })?;
            certificates.push(certificate);
        }
        if certificates.len() == before {
            return Err(TlsError::NoCertificate(path.to_owned()));
        }
    }
    match certificates.is_empty() {
        true => Err(TlsError::NoRoots),
        false => Ok(certificates),
    }
}

pub(crate) async fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(authorities(ca_file).await?);
    if usable == 0 {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
