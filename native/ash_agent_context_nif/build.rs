//! Packs the relocations of the library, 330 KB as a table, into 3 KB where the system can load it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if can_unpack().unwrap_or(false) {
        println!("cargo::rustc-link-arg-cdylib=-Wl,-z,pack-relative-relocs");
    }
}

/// Tells whether the library is for this system, and its glibc 2.36 or later. Older linkers ignore the option with a warning.
fn can_unpack() -> Option<bool> {
    let is_own = env::var("HOST").ok()? == env::var("TARGET").ok()?;
    if !is_own || env::var("CARGO_CFG_TARGET_ENV").ok()? != "gnu" {
        return Some(false);
    }
    let told = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    let version: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(version >= (2, 36))
}
