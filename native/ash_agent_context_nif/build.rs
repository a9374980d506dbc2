//! Packs the relocations of the library, 330 KB as a table, into 3 KB where the system can load it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ASH_AGENT_CONTEXT_GLIBC");
    if can_unpack().unwrap_or(false) {
        println!("cargo::rustc-link-arg-cdylib=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns whether the library is for this system, and for glibc 2.36 or later. Older linkers ignore the option with a warning.
fn can_unpack() -> Option<bool> {
    let is_own = env::var("HOST").ok()? == env::var("TARGET").ok()?;
    if !is_own || env::var("CARGO_CFG_TARGET_ENV").ok()? != "gnu" {
        return Some(false);
    }
    // A release is built for older systems as well, see bin/precompile.
    let glibc = match env::var("ASH_AGENT_CONTEXT_GLIBC") {
        Ok(version) if !version.is_empty() => version,
        _ => read_glibc()?,
    };
    let (major, minor) = glibc.split_once('.')?;
    let minor = minor.split('.').next()?;
    let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(version >= (2, 36))
}

/// Reads the version of this system's glibc.
fn read_glibc() -> Option<String> {
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let words = String::from_utf8(output.stdout).ok()?;
    Some(words.trim().strip_prefix("glibc ")?.to_string())
}
