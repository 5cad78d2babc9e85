//! The programs that tests run against: which, in which version, and from where.
//!
//! Each lives in a folder of its own, `<cache>/<name>-<version>`, made under a temporary name and renamed, so that a
//! broken download is never used. The cache is `~/.cache/transponder-tools`; `TRANSPONDER_TOOLS` moves it. Checksums
//! are those of the registries: the `go.sum` of `tools/go` and `tools/kubernetes`, the sums below, `tools/npm/package-lock.json`,
//! `tools/pypi/requirements.txt`, and Debian's signed package lists.

mod cache;
mod install;
mod toolbox;

use std::process::ExitCode;

use anyhow::{Result, bail};

pub(crate) use toolbox::Toolbox;

use crate::report::{Outcome, Report};

/// One tool: a name and what it takes to have it.
#[derive(Debug)]
pub(crate) struct Tool {
    /// What suites and `cargo xtask tools` call it.
    pub(crate) name: &'static str,
    /// The pinned version; empty for what comes with the system or is given.
    version: &'static str,
    source: Source,
    programs: &'static [Program],
}

/// One program of a tool. Tests find it through the variable `TRANSPONDER_TOOL_<NAME>`.
#[derive(Debug)]
struct Program {
    /// The program's name, in the cache's `bin` as well.
    name: &'static str,
    /// Where it lies in the tool's folder; `{arch}` is npm's word for this machine. Unused for system tools.
    path: &'static str,
}

#[derive(Debug)]
enum Source {
    /// Built by one `go build`.
    Go(GoBuild),
    /// Files out of a Go module, of which nothing is built.
    GoFiles(GoFiles),
    /// Installed from `tools/npm`.
    Npm,
    /// One file out of the source archive named in `tools/pypi`.
    Pypi,
    /// Debian packages, downloaded and unpacked but not installed: they would start services.
    Debian(&'static [&'static str]),
    /// On the system, or installed there by apt when this is root.
    System,
    /// A binary named by this variable; it is in no registry.
    Given(&'static str),
}

/// What one `go build` makes.
#[derive(Debug)]
struct GoBuild {
    /// The folder of `tools` whose `go.mod` pins it.
    module: &'static str,
    /// The packages of its programs.
    packages: &'static [&'static str],
    /// What the linker is told; empty for nothing.
    ldflags: &'static str,
}

/// Files of a Go module.
#[derive(Debug)]
struct GoFiles {
    /// The module and its version.
    module: &'static str,
    /// Its checksum, as a `go.sum` would have it.
    sum: &'static str,
    /// The files, which land in the tool's folder by their own names.
    files: &'static [&'static str],
}

/// All tools, quick ones first: they are set up in this order.
pub(crate) const TOOLS: &[Tool] = &[
    Tool { name: "curl", version: "", source: Source::System, programs: &[program("curl", "")] },
    Tool { name: "jq", version: "", source: Source::System, programs: &[program("jq", "")] },
    Tool {
        name: "buf",
        version: "1.75.0",
        source: Source::Npm,
        programs: &[program("buf", "node_modules/@bufbuild/buf-linux-{arch}/bin/buf")],
    },
    Tool {
        name: "prometheus",
        version: "2.42.0",
        source: Source::Debian(&["prometheus=2.42.0*"]),
        programs: &[program("prometheus", "usr/bin/prometheus"), program("promtool", "usr/bin/promtool")],
    },
    Tool {
        name: "wrk",
        version: "4.1.0",
        source: Source::Debian(&["wrk=4.1.0*", "libluajit-5.1-2", "libluajit-5.1-common"]),
        programs: &[program("wrk", "usr/bin/wrk")],
    },
    Tool {
        name: "faketime",
        version: "0.9.10",
        source: Source::Debian(&["libfaketime=0.9.10*"]),
        // The library, for LD_PRELOAD: the `faketime` program knows it only where Debian installs it.
        programs: &[program("libfaketime", "usr/lib/libfaketime.so.1")],
    },
    Tool {
        name: "etcd",
        version: "3.4.23",
        source: Source::Debian(&["etcd-server=3.4.23*", "etcd-client=3.4.23*"]),
        programs: &[program("etcd", "usr/bin/etcd"), program("etcdctl", "usr/bin/etcdctl")],
    },
    Tool {
        name: "grpcurl-v1alpha",
        version: "1.8.6",
        source: Source::Pypi,
        programs: &[program("grpcurl-v1alpha", "grpcurl")],
    },
    Tool {
        name: "argocd-crds",
        version: "3.2.1",
        source: Source::GoFiles(GoFiles {
            module: "github.com/argoproj/argo-cd/v3@v3.2.1",
            sum: "h1:rvrkW/JdH4V+xJgNDZI9wa/Ygd+fWoGbd1rAhvno22c=",
            files: &["manifests/crds/application-crd.yaml"],
        }),
        programs: &[program("argocd-application-crd", "application-crd.yaml")],
    },
    Tool {
        name: "grpcurl",
        version: "1.9.3",
        source: Source::Go(shared(&["github.com/fullstorydev/grpcurl/cmd/grpcurl"])),
        programs: &[program("grpcurl", "grpcurl")],
    },
    Tool {
        name: "vegeta",
        version: "12.12.0",
        source: Source::Go(shared(&["github.com/tsenart/vegeta/v12"])),
        programs: &[program("vegeta", "vegeta")],
    },
    Tool {
        name: "jaeger",
        version: "1.76.0",
        source: Source::Go(shared(&["github.com/jaegertracing/jaeger/cmd/jaeger"])),
        programs: &[program("jaeger", "jaeger")],
    },
    Tool {
        name: "kubernetes",
        version: "1.36.0",
        source: Source::Go(GoBuild {
            module: "kubernetes",
            packages: &[
                "k8s.io/kubernetes/cmd/kube-apiserver",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "k8s.io/kubernetes/cmd/kubectl",
            ],
            // Without them it says that it is v0.0.0, and clients that look for a version go by that.
            ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.0 \
                      -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
        }),
        programs: &[
            program("kube-apiserver", "kube-apiserver"),
            program("kube-controller-manager", "kube-controller-manager"),
            program("kubectl", "kubectl"),
        ],
    },
    Tool {
        name: "tempo",
        version: "",
        source: Source::Given("TEMPO_BIN"),
        programs: &[program("tempo", "")],
    },
];

const fn program(name: &'static str, path: &'static str) -> Program {
    Program { name, path }
}

/// Packages of the module that the Go tools without needs of their own share.
const fn shared(packages: &'static [&'static str]) -> GoBuild {
    GoBuild { module: "go", packages, ldflags: "" }
}

/// What `cargo xtask tools` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Tools to set up; none means all
    names: Vec<String>,
}

/// Sets tools up and prints where each is.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<&'static str> = if arguments.names.is_empty() {
        TOOLS.iter().map(|tool| tool.name).collect()
    } else {
        arguments.names.iter().map(|name| find(name).map(|tool| tool.name)).collect::<Result<_>>()?
    };
    let toolbox = Toolbox::prepare(&chosen)?;
    let mut report = Report::default();
    for name in chosen {
        report.step(name, || match toolbox.wait(name) {
            Ok(programs) => {
                for program in programs {
                    crate::report::line(&format!("      {}", program.path.display()));
                }
                Ok(Outcome::Passed)
            }
            // Asked for by name it must be there; among all of them a run can do without.
            Err(reason) if arguments.names.is_empty() => Ok(Outcome::Skipped(reason)),
            Err(reason) => Ok(Outcome::Failed(reason)),
        });
    }
    Ok(if report.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find(name: &str) -> Result<&'static Tool> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        bail!("no tool is called `{name}`; there are {}", known.join(", "));
    };
    Ok(tool)
}
