//! `mesh-certs` and `edge-certs`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use crate::{
    certificates::{Choice, MeshCertificates, Trust, Written, write_edge},
    cli::Globals,
    config,
    output::print,
};

/// What both commands share.
#[derive(Debug, clap::Args)]
pub struct CertificateArgs {
    /// Where to write; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub directory: PathBuf,
    /// DNS names and addresses beside localhost, 127.0.0.1, ::1 and those of the certificate that is replaced.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,
    /// How many days the certificates are valid.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
}

impl CertificateArgs {
    fn validity(&self) -> Duration {
        Duration::from_hours(24 * u64::from(self.days))
    }
}

/// Arguments of `mesh-certs`.
#[derive(Debug, clap::Args)]
pub struct MeshCertsArgs {
    /// Where and how.
    #[command(flatten)]
    pub common: CertificateArgs,
    /// Begin with a new authority; the one before stays trusted as ca-previous.crt until that file is removed. Where
    /// ca.crt is lost, nothing of it stays, and every service and Task needs the new one.
    #[arg(long)]
    pub new_authority: bool,
}

/// Arguments of `edge-certs`.
#[derive(Debug, clap::Args)]
pub struct EdgeCertsArgs {
    /// Where and how.
    #[command(flatten)]
    pub common: CertificateArgs,
    /// Begin with a new authority: every cluster's hooks then need the new edge-ca.crt.
    #[arg(long)]
    pub new_authority: bool,
}

/// Writes the identities of the mesh.
///
/// # Errors
/// When the configuration cannot be used, a name is none, or a file cannot be written.
pub fn mesh(globals: &Globals, args: MeshCertsArgs) -> anyhow::Result<ExitCode> {
    let (config, _) = config::load(globals)?;
    let written = MeshCertificates {
        directory: &args.common.directory,
        trust_domain: &config.mesh.trust_domain,
        names: &args.common.names,
        validity: args.common.validity(),
        authority: choice(args.new_authority),
    }
    .write()?;
    let directory = args.common.directory.display();
    print(&format!(
        "wrote ca.crt and the certificate and key of each service to {directory}\n\
         use them with mesh.directory = \"{directory}\"; running services take them over by themselves\n\
         ca.key signs identities of the mesh: no service needs it, keep it elsewhere\n{}{}",
        names(&written),
        match written.trust {
            Trust::Kept => "",
            Trust::Both =>
                "ca.crt is new, ca-previous.crt is the one before: give both to every service and the new one to every \
                 Task, then remove ca-previous.crt\n",
            Trust::Lost =>
                "ca.crt is new and the one before is not trusted any more: every service and every Task needs this \
                 directory's now\n",
        }
    ));
    Ok(ExitCode::SUCCESS)
}

/// Writes the certificate of the edge.
///
/// # Errors
/// When a name is none, or a file cannot be written.
pub fn edge(args: EdgeCertsArgs) -> anyhow::Result<ExitCode> {
    let choice = choice(args.new_authority);
    let args = args.common;
    let written = write_edge(&args.directory, &args.names, args.validity(), choice)?;
    let directory = args.directory.display();
    print(&format!(
        "wrote edge.crt, edge.key and edge-ca.crt to {directory}\n\
         use them with edge.certificate = \"{directory}/edge.crt\" and edge.key = \"{directory}/edge.key\"\n\
         hooks trust the edge by edge-ca.crt: 'cluster add --ca {directory}/edge-ca.crt'\n{}{}",
        names(&written),
        match written.trust {
            Trust::Kept | Trust::Both => "",
            Trust::Lost =>
                "edge-ca.crt is new: hooks refuse the edge until every cluster has it, as ca.crt in the Secret of its \
                 namespaces and as relayCA in its entry of the registry\n",
        }
    ));
    Ok(ExitCode::SUCCESS)
}

fn choice(new_authority: bool) -> Choice {
    if new_authority { Choice::New } else { Choice::Existing }
}

/// A line per certificate: what it is for, and what of that was taken over from the one before.
fn names(written: &Written) -> String {
    let mut text = String::new();
    for issued in &written.issued {
        let kept = match issued.kept.as_slice() {
            [] => String::new(),
            kept => format!(" (kept from the one before: {})", kept.join(", ")),
        };
        text.push_str(&format!("{}.crt is for {}{kept}\n", issued.name, issued.names.join(", ")));
    }
    text
}
