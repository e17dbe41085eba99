//! Rust bindings of the library digits: the declarations of digits.h, and an instance with `Drop`.

use std::ffi::{c_char, c_void, CStr};

#[link(name = "m")]
extern "C" {}

extern "C" {
    fn digits_create(instance: *mut *mut c_void, options: *const c_void) -> i32;
    fn digits_destroy(instance: *mut c_void);
    fn digits_status_text(status: i32) -> *const c_char;
    fn digits_main(instance: *mut c_void, picture: *const u8, likely: *mut f32) -> i32;
}

pub const SIZE: usize = 28;
pub type Picture = [u8; SIZE * SIZE];

pub struct Network(*mut c_void);

// Calls of one instance are serialized.
unsafe impl Send for Network {}
unsafe impl Sync for Network {}

impl Network {
    pub fn new() -> Result<Network, String> {
        let mut instance = std::ptr::null_mut();
        check(unsafe { digits_create(&mut instance, std::ptr::null()) })?;
        Ok(Network(instance))
    }

    /// Probability of each digit.
    pub fn classify(&self, picture: &Picture) -> Result<[f32; 10], String> {
        let mut likely = [0.0; 10];
        check(unsafe { digits_main(self.0, picture.as_ptr(), likely.as_mut_ptr()) })?;
        Ok(likely)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        unsafe { digits_destroy(self.0) }
    }
}

fn check(status: i32) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(digits_status_text(status)) };
    Err(text.to_string_lossy().into_owned())
}
