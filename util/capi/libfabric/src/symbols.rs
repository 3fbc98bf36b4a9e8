//! The exported symbols. Each symbol is a jump in assembler, because rustc exports symbols without
//! versions.

#![expect(unsafe_code, reason = "symbols of assembler")]

use std::arch::global_asm;

use selvedge_fabric_c::export::discover::{
    dupinfo, fabric, fabric_1_0, fabric2, freeinfo, getinfo,
};
use selvedge_fabric_c::export::print::{log_enabled, log_ready, strerror, tostr, tostr_r, version};
use selvedge_fabric_c::export::special::{
    freeparams, getparams, log_text, open, param_define, param_get,
};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

/// Exports `name@FABRIC_1.n`; `@@` marks the version that new programs are linked to.
macro_rules! export {
    ($($label:literal $symbol:literal = $function:path;)+) => {$(
        global_asm!(
            concat!(".pushsection .text.", $label, ",\"ax\",@progbits"),
            concat!(".globl ", $label),
            concat!(".type ", $label, ",@function"),
            concat!($label, ":"),
            jump!(),
            concat!(".size ", $label, ", .-", $label),
            concat!(".symver ", $label, ", ", $symbol),
            ".popsection",
            f = sym $function,
        );
    )+};
}

export! {
    "sv_getinfo_0" "fi_getinfo@FABRIC_1.0" = getinfo::<0>;
    "sv_getinfo_1" "fi_getinfo@FABRIC_1.1" = getinfo::<1>;
    "sv_getinfo_2" "fi_getinfo@FABRIC_1.2" = getinfo::<2>;
    "sv_getinfo_3" "fi_getinfo@FABRIC_1.3" = getinfo::<3>;
    "sv_getinfo_7" "fi_getinfo@FABRIC_1.7" = getinfo::<7>;
    "sv_getinfo_8" "fi_getinfo@FABRIC_1.8" = getinfo::<8>;
    "sv_getinfo_9" "fi_getinfo@@FABRIC_1.9" = getinfo::<9>;
    "sv_getinfo_10" "fi_getinfo@FABRIC_1.10" = getinfo::<10>;
    "sv_freeinfo_0" "fi_freeinfo@FABRIC_1.0" = freeinfo;
    "sv_freeinfo_1" "fi_freeinfo@FABRIC_1.1" = freeinfo;
    "sv_freeinfo_2" "fi_freeinfo@FABRIC_1.2" = freeinfo;
    "sv_freeinfo_3" "fi_freeinfo@FABRIC_1.3" = freeinfo;
    "sv_freeinfo_7" "fi_freeinfo@FABRIC_1.7" = freeinfo;
    "sv_freeinfo_8" "fi_freeinfo@FABRIC_1.8" = freeinfo;
    "sv_freeinfo_9" "fi_freeinfo@@FABRIC_1.9" = freeinfo;
    "sv_freeinfo_10" "fi_freeinfo@FABRIC_1.10" = freeinfo;
    "sv_dupinfo_0" "fi_dupinfo@FABRIC_1.0" = dupinfo::<0>;
    "sv_dupinfo_1" "fi_dupinfo@FABRIC_1.1" = dupinfo::<1>;
    "sv_dupinfo_2" "fi_dupinfo@FABRIC_1.2" = dupinfo::<2>;
    "sv_dupinfo_3" "fi_dupinfo@FABRIC_1.3" = dupinfo::<3>;
    "sv_dupinfo_7" "fi_dupinfo@FABRIC_1.7" = dupinfo::<7>;
    "sv_dupinfo_8" "fi_dupinfo@FABRIC_1.8" = dupinfo::<8>;
    "sv_dupinfo_9" "fi_dupinfo@@FABRIC_1.9" = dupinfo::<9>;
    "sv_dupinfo_10" "fi_dupinfo@FABRIC_1.10" = dupinfo::<10>;
    "sv_fabric_0" "fi_fabric@FABRIC_1.0" = fabric_1_0;
    "sv_fabric_1" "fi_fabric@@FABRIC_1.1" = fabric;
    "sv_fabric2_8" "fi_fabric2@@FABRIC_1.8" = fabric2;
    "sv_version_0" "fi_version@@FABRIC_1.0" = version;
    "sv_strerror_0" "fi_strerror@@FABRIC_1.0" = strerror;
    "sv_tostr_0" "fi_tostr@@FABRIC_1.0" = tostr;
    "sv_tostr_r_4" "fi_tostr_r@@FABRIC_1.4" = tostr_r;
    "sv_open_5" "fi_open@@FABRIC_1.5" = open;
    "sv_log_enabled_0" "fi_log_enabled@@FABRIC_1.0" = log_enabled;
    "sv_log_ready_6" "fi_log_ready@@FABRIC_1.6" = log_ready;
    "sv_param_get_0" "fi_param_get@@FABRIC_1.0" = param_get;
    "sv_getparams_0" "fi_getparams@@FABRIC_1.0" = getparams;
    "sv_freeparams_0" "fi_freeparams@@FABRIC_1.0" = freeparams;
}

/// Exports the two variadic functions, which Rust cannot define. The assembler stores the argument
/// registers as C's `va_start` does, and passes a pointer to that argument list as the argument
/// behind the format.
#[cfg(target_arch = "x86_64")]
macro_rules! export_with_list {
    ($($label:literal $symbol:literal $named_count:literal $list:literal = $function:path;)+) => {$(
        global_asm!(
            concat!(".pushsection .text.", $label, ",\"ax\",@progbits"),
            concat!(".globl ", $label),
            concat!(".type ", $label, ",@function"),
            concat!($label, ":"),
            ".cfi_startproc",
            "sub rsp, 216",
            ".cfi_adjust_cfa_offset 216",
            "mov [rsp + 32], rdi",
            "mov [rsp + 40], rsi",
            "mov [rsp + 48], rdx",
            "mov [rsp + 56], rcx",
            "mov [rsp + 64], r8",
            "mov [rsp + 72], r9",
            "test al, al",
            "je 2f",
            "movaps [rsp + 80], xmm0",
            "movaps [rsp + 96], xmm1",
            "movaps [rsp + 112], xmm2",
            "movaps [rsp + 128], xmm3",
            "movaps [rsp + 144], xmm4",
            "movaps [rsp + 160], xmm5",
            "movaps [rsp + 176], xmm6",
            "movaps [rsp + 192], xmm7",
            "2:",
            concat!("mov dword ptr [rsp + 8], ", $named_count, " * 8"),
            "mov dword ptr [rsp + 12], 48",
            "lea rax, [rsp + 224]",
            "mov [rsp + 16], rax",
            "lea rax, [rsp + 32]",
            "mov [rsp + 24], rax",
            $list,
            "call {f}",
            "add rsp, 216",
            ".cfi_adjust_cfa_offset -216",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $label, ", .-", $label),
            concat!(".symver ", $label, ", ", $symbol),
            ".popsection",
            f = sym $function,
        );
    )+};
}

#[cfg(target_arch = "x86_64")]
export_with_list! {
    "sv_param_define_0" "fi_param_define@@FABRIC_1.0" "4" "lea r8, [rsp + 8]" = param_define;
    "sv_log_0" "fi_log@@FABRIC_1.0" "6" "lea rax, [rsp + 8]\nmov [rsp], rax" = log_text;
}

/// On other architectures, texts are printed without their arguments.
#[cfg(not(target_arch = "x86_64"))]
export! {
    "sv_param_define_0" "fi_param_define@@FABRIC_1.0" = selvedge_fabric_c::export::special::param_define_without_arguments;
    "sv_log_0" "fi_log@@FABRIC_1.0" = selvedge_fabric_c::export::special::log_without_arguments;
}
