//! `init`: an installation that `all` runs as it is.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use crate::{
    installation::{Installation, Plan, TASK_ACCOUNT, TASK_NAMESPACE},
    output::{GOOD, paint, print},
};

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The directory; made if it is not there.
    pub directory: PathBuf,
    /// DNS names and addresses of this machine for the certificates, beside localhost, 127.0.0.1 and ::1.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,
    /// Where events are posted to.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = http_url)]
    pub broker_url: url::Url,
}

fn http_url(text: &str) -> Result<url::Url, String> {
    let url: url::Url =
        text.parse().map_err(|error| format!("is no URL such as http://broker:8080: {error}"))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        return Ok(url);
    }
    Err("is no http or https URL such as http://broker:8080".into())
}

/// Makes the installation.
///
/// # Errors
/// When there is one already, or a file cannot be written.
pub fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    let installation = Installation::at(&args.directory)?;
    installation.make(&Plan {
        names: &args.names,
        validity: Duration::from_hours(365 * 24),
        broker_url: args.broker_url.as_str(),
        broker_token: None,
    })?;
    let config = installation.config_file();
    let host = args.names.first().map_or("127.0.0.1", String::as_str);
    print(&format!(
        "{} {} is ready\n\n  export TRANSPONDER_CONFIG={}\n  \
         transponder cluster add kind-prod --url https://{host}:8443 --ca {}\n  \
         transponder all\n  transponder doctor\n\n\
         {} holds the token of {TASK_NAMESPACE}/{TASK_ACCOUNT}, for calls with grpcurl.\n",
        paint(GOOD, "✓"),
        installation.root().display(),
        config.display(),
        installation.edge_authority().display(),
        installation.task_token().display(),
    ));
    Ok(ExitCode::SUCCESS)
}
