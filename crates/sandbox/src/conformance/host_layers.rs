//! Cases about host layers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::fixture::{ConformanceFixture, ConformanceResult, expect_eq, expect_true, sh};
use crate::{HostLayer, SandboxSpec};

const INSIDE: &str = "/opt/conformance/folder";
const FILE: &str = "/opt/conformance/one/tool";
const DATA: &[u8] = b"as it was\n";

pub(super) async fn layers(fixture: &ConformanceFixture<'_>) -> ConformanceResult {
    let host = fixture.host_folder()?;
    let folder = host.join("layer");
    fs::create_dir_all(folder.join("bin"))?;
    fs::write(folder.join("bin/tool"), "#!/bin/sh\necho \"tool says $1\"\n")?;
    fs::write(folder.join("data"), DATA)?;
    fs::write(host.join("beside"), "nobody's business")?;
    // The permissions allow everybody to write, but nothing inside can.
    for (path, mode) in [("bin/tool", 0o777), ("data", 0o666), ("bin", 0o777), ("", 0o777)] {
        fs::set_permissions(folder.join(path), fs::Permissions::from_mode(mode))?;
    }
    let layers = vec![
        HostLayer { host: folder.clone(), inside: PathBuf::from(INSIDE) },
        HostLayer { host: folder.join("bin/tool"), inside: PathBuf::from(FILE) },
    ];
    let sandbox = fixture.backend.create(&SandboxSpec { layers, ..fixture.spec("layers") }).await?;
    // A backend that runs commands directly on the host cannot hide or protect anything.
    let caged = fixture.backend.capabilities().host_layers;
    let (seen, file) = if caged {
        (Path::new(INSIDE).to_owned(), PathBuf::from(FILE))
    } else {
        (folder.clone(), folder.join("bin/tool"))
    };
    let seen = seen.display();
    expect_eq(
        "the tool",
        sh(sandbox.as_ref(), &format!("{seen}/bin/tool hi; {} ho", file.display())).await?,
        "tool says hi\ntool says ho\n",
    )?;
    expect_eq("the data", sh(sandbox.as_ref(), &format!("cat {seen}/data")).await?, "as it was\n")?;
    if caged {
        for attempt in [
            format!("echo x > {seen}/data"),
            format!("echo x >> {FILE}"),
            format!("echo x > {seen}/new"),
            format!("rm -f {seen}/data && test ! -e {seen}/data"),
            format!("mv {seen}/data {seen}/moved"),
            format!("chmod 700 {seen}/data"),
            format!("mkdir {seen}/bin/new"),
            format!("ln -s data {seen}/link"),
            format!("rm -rf {seen} && test ! -e {seen}"),
            format!("mount -o remount,rw {seen}"),
        ] {
            let line = format!("if ({attempt}) > /dev/null 2>&1; then echo done; else echo refused; fi");
            expect_eq(&attempt, sh(sandbox.as_ref(), &line).await?, "refused\n")?;
        }
        expect_eq(
            "beside it",
            sh(sandbox.as_ref(), "ls -A /opt/conformance /opt/conformance/one").await?,
            "/opt/conformance:\nfolder\none\n\n/opt/conformance/one:\ntool\n",
        )?;
        let names = sh(sandbox.as_ref(), "find / -name beside -not -path '/proc/*' 2> /dev/null; true").await?;
        expect_eq("what lies beside it on the host", names, "")?;
    }
    let again = fixture.backend.open(sandbox.id()).await?;
    expect_eq(
        "after it was opened again",
        sh(again.as_ref(), &format!("{seen}/bin/tool yes")).await?,
        "tool says yes\n",
    )?;
    again.destroy().await?;
    expect_eq("the data on the host", fs::read(folder.join("data"))?, DATA)?;
    let mode = fs::metadata(folder.join("data"))?.permissions().mode() & 0o777;
    expect_true("its mode is what it was", mode == 0o666)?;
    expect_eq("what is in it", fs::read_dir(&folder)?.count(), 2)
}
