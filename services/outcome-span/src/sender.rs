//! One span to the backend: short repetitions within the call, and what is left to say when they did not help.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use tokio::time::Instant;
use transponder_core::retry::Backoff;
use transponder_runtime::{Context, Fault, outage::Outage, watch};

use crate::{
    SettingError, Settings,
    exporter::{self, Accepted, Exporter, Failure},
    metrics::Metrics,
    span::Ids,
    waiting::Waiting,
};

/// Sends within one call. What they do not bring about, the caller's own schedule does.
const SENDS: u32 = 3;
/// The delays between them.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(300) };

/// The way to the backend.
pub(crate) struct Sender {
    settings: Settings,
    file: PathBuf,
    /// The contents of the certificate files that were looked at last.
    certificates: Mutex<Vec<Vec<u8>>>,
    exporter: ArcSwap<Box<dyn Exporter>>,
    waiting: Arc<Waiting>,
    outage: Outage,
    metrics: Metrics,
}

impl Sender {
    pub(crate) fn new(
        settings: Settings,
        file: PathBuf,
        unknown_wait: Duration,
        context: &Context,
    ) -> Result<Arc<Self>, SettingError> {
        let exporter = exporter::build(&settings, &file)?;
        let sender = Arc::new(Self {
            exporter: ArcSwap::from_pointee(exporter),
            waiting: Waiting::new(unknown_wait, context.clock.clone()),
            outage: Outage::new("sending spans"),
            metrics: Metrics::register(context),
            certificates: Mutex::default(),
            settings,
            file,
        });
        let directories =
            sender.files().filter_map(|file| file.parent()).map(PathBuf::from).collect::<Vec<_>>();
        if !directories.is_empty() {
            sender.certificates_have_changed();
            let watched = sender.clone();
            watch::spawn_shallow(directories, context.shutdown.clone(), move || {
                if watched.certificates_have_changed() {
                    watched.renew();
                }
            });
        }
        Ok(sender)
    }

    /// The certificate files, which may change.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let identity = self.settings.client_identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.settings.certificate.iter().chain(identity)
    }

    fn certificates_have_changed(&self) -> bool {
        let now = self.files().map(|file| std::fs::read(file).unwrap_or_default()).collect::<Vec<_>>();
        let mut certificates = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = *certificates != now;
        *certificates = now;
        changed
    }

    /// A new connection, with the certificates as they are now; bad ones keep the last good.
    fn renew(&self) {
        match exporter::build(&self.settings, &self.file) {
            Ok(exporter) => self.exporter.store(Arc::new(exporter)),
            Err(error) => tracing::error!(%error, "not taken over, the last good certificates stay"),
        }
    }

    /// Returns when the backend has the span.
    pub(crate) async fn send(
        &self,
        ids: Ids,
        request: &ExportTraceServiceRequest,
    ) -> Result<Accepted, Fault> {
        let under_way = self.waiting.begin(ids.trace).map_err(|left| {
            self.metrics.sent("waiting");
            Fault::unavailable("the span may be on its way already: whether its last send arrived is unknown")
                .reason("UNKNOWN_END")
                .retry_after(Some(left))
        })?;
        let result = self.attempts(request).await;
        if !matches!(result, Err(Failure::Unknown(_))) {
            under_way.end_is_known();
        }
        self.report(&result);
        result.map_err(|failure| self.fault(failure))
    }

    async fn attempts(&self, request: &ExportTraceServiceRequest) -> Result<Accepted, Failure> {
        let deadline = Instant::now() + self.settings.timeout;
        let mut attempt = 1;
        loop {
            let exporter = self.exporter.load_full();
            let failure = match tokio::time::timeout_at(deadline, exporter.export(request)).await {
                Ok(Ok(accepted)) => return Ok(accepted),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    // The peer may be gone without a word; the next send begins with a new connection.
                    self.renew();
                    let timeout = self.settings.timeout;
                    return Err(Failure::Unknown(format!(
                        "the tracing backend did not answer within {timeout:?}"
                    )));
                }
            };
            let Failure::Later { repeat: true, retry_after, .. } = &failure else { return Err(failure) };
            let pause = BACKOFF.delay(attempt, *retry_after, fastrand::f64());
            if attempt == SENDS || Instant::now() + pause >= deadline {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    fn report(&self, result: &Result<Accepted, Failure>) {
        let (name, broken) = match result {
            Ok(accepted) if accepted.warning.is_empty() => ("sent", None),
            Ok(accepted) => {
                tracing::warn!(warning = accepted.warning, "the tracing backend took a span with a warning");
                ("warned", None)
            }
            Err(Failure::Rejected(message)) => {
                tracing::error!(message, "the tracing backend rejected a span");
                ("rejected", None)
            }
            Err(Failure::Refused(message)) => ("refused", Some(message)),
            Err(Failure::Later { message, .. }) => ("later", Some(message)),
            Err(Failure::Unknown(message)) => ("unknown", Some(message)),
        };
        self.metrics.sent(name);
        match broken {
            Some(message) => self.outage.failed(message),
            None => self.outage.worked(),
        }
    }

    fn fault(&self, failure: Failure) -> Fault {
        match failure {
            Failure::Rejected(message) => {
                Fault::invalid(format!("the tracing backend rejected the span: {message}"))
                    .reason("SPAN_REJECTED")
            }
            Failure::Refused(message) => Fault::precondition(message).reason("BACKEND_REFUSED"),
            Failure::Later { message, retry_after, .. } => {
                Fault::unavailable(message).reason("BACKEND_UNAVAILABLE").retry_after(retry_after)
            }
            Failure::Unknown(message) => {
                Fault::unavailable(message).reason("UNKNOWN_END").retry_after(Some(self.waiting.wait()))
            }
        }
    }
}
