//! Bindings to the system's WiredTiger, generated from its header. Its handles are structs of functions,
//! whose order differs between versions.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "wiredtiger")]
    wiredtiger();
}

#[cfg(feature = "wiredtiger")]
fn wiredtiger() {
    let directory = std::env::var_os("OUT_DIR").expect("cargo says where");
    let bindings = bindgen::Builder::default()
        .header_contents("peers.h", "#include <malloc.h>\n#include <wiredtiger.h>")
        .allowlist_function("malloc_trim|wiredtiger_(open|strerror|version)")
        .allowlist_type("__wt_(connection|session|cursor|item)")
        .allowlist_var("WIREDTIGER_VERSION_(MAJOR|MINOR|PATCH)")
        .allowlist_var("WT_(NOTFOUND|ROLLBACK)")
        .allowlist_var("WT_STAT_CONN_(BLOCK_BYTE_WRITE|LOG_BYTES_WRITTEN)")
        .opaque_type("__wt_(async|config|event|extension|file|lsm|modify).*")
        .generate_comments(false)
        .generate()
        .expect(
            "Debian has wiredtiger.h in libwiredtiger-dev, and libclang, which reads it, in libclang-dev",
        );
    bindings.write_to_file(std::path::Path::new(&directory).join("wiredtiger.rs")).expect("it is written");
    println!("cargo:rustc-link-lib=wiredtiger");
}
