// Handlers of XLA's FFI, as extensions write them: most with the C++ header, `describe` with the C one.

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

#if XLA_FFI_API_MINOR <= 3  // names of later versions
#define XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE
#define XLA_FFI_Error_GetDetails_Args XLA_FFI_Error_GetMessage_Args
#define XLA_FFI_Error_GetDetails XLA_FFI_Error_GetMessage
#endif

namespace ffi = xla::ffi;
using ffi::Error;
using ffi::ErrorCode;
using F32 = ffi::Buffer<ffi::F32>;
using RetF32 = ffi::ResultBuffer<ffi::F32>;

// ---------------------------------------------------------------------- everything that a frame says, as its error
static std::string Number(XLA_FFI_DataType dtype, const void* data, size_t i) {
  switch (dtype) {
    case XLA_FFI_DataType_PRED: return static_cast<const uint8_t*>(data)[i] ? "true" : "false";
    case XLA_FFI_DataType_S8: return std::to_string(static_cast<const int8_t*>(data)[i]);
    case XLA_FFI_DataType_S16: return std::to_string(static_cast<const int16_t*>(data)[i]);
    case XLA_FFI_DataType_S32: return std::to_string(static_cast<const int32_t*>(data)[i]);
    case XLA_FFI_DataType_S64: return std::to_string(static_cast<const int64_t*>(data)[i]);
    case XLA_FFI_DataType_U8: return std::to_string(static_cast<const uint8_t*>(data)[i]);
    case XLA_FFI_DataType_U16: return std::to_string(static_cast<const uint16_t*>(data)[i]);
    case XLA_FFI_DataType_U32: return std::to_string(static_cast<const uint32_t*>(data)[i]);
    case XLA_FFI_DataType_U64: return std::to_string(static_cast<const uint64_t*>(data)[i]);
    case XLA_FFI_DataType_F32: return std::to_string(static_cast<const float*>(data)[i]);
    case XLA_FFI_DataType_F64: return std::to_string(static_cast<const double*>(data)[i]);
    default: return "?";
  }
}

static std::string Numbers(XLA_FFI_DataType dtype, const void* data, size_t size) {
  std::string out = "(" + std::to_string(dtype) + ")";
  for (size_t i = 0; i < size; i++) out += (i ? "," : "") + Number(dtype, data, i);
  return out;
}

static std::string Text(const XLA_FFI_ByteSpan* span) { return std::string(span->ptr, span->len); }

static std::string Attributes(const XLA_FFI_Attrs& attrs) {
  std::string out = "{";
  for (int64_t i = 0; i < attrs.size; i++) {
    out += (i ? " " : "") + Text(attrs.names[i]) + "=";
    if (attrs.types[i] == XLA_FFI_AttrType_SCALAR) {
      auto* scalar = static_cast<XLA_FFI_Scalar*>(attrs.attrs[i]);
      out += Numbers(scalar->dtype, scalar->value, 1);
    } else if (attrs.types[i] == XLA_FFI_AttrType_ARRAY) {
      auto* array = static_cast<XLA_FFI_Array*>(attrs.attrs[i]);
      out += "[" + Numbers(array->dtype, array->data, array->size) + "]";
    } else if (attrs.types[i] == XLA_FFI_AttrType_STRING) {
      out += "'" + Text(static_cast<XLA_FFI_ByteSpan*>(attrs.attrs[i])) + "'";
    } else {
      out += Attributes(*static_cast<XLA_FFI_Attrs*>(attrs.attrs[i]));
    }
  }
  return out + "}";
}

static std::string Buffers(int64_t size, void** values) {
  std::string out = "(";
  for (int64_t i = 0; i < size; i++) {
    auto* buffer = static_cast<XLA_FFI_Buffer*>(values[i]);
    out += (i ? " " : "") + std::to_string(buffer->dtype) + "[";
    for (int64_t d = 0; d < buffer->rank; d++) out += (d ? "," : "") + std::to_string(buffer->dims[d]);
    out += buffer->struct_size == XLA_FFI_Buffer_STRUCT_SIZE ? "]" : "]!";
  }
  return out + ")";
}

static XLA_FFI_Error* MakeError(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const std::string& message) {
  XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message.c_str(), code};
  return api->XLA_FFI_Error_Create(&args);
}

static bool IsMetadata(XLA_FFI_CallFrame* frame, int major, int minor) {
  auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
  if (!extension || extension->extension_base.type != XLA_FFI_Extension_Metadata) return false;
  extension->metadata->api_version.major_version = major;
  extension->metadata->api_version.minor_version = minor;
  return true;
}

extern "C" XLA_FFI_Error* describe(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 3)) return nullptr;
  return MakeError(frame->api, XLA_FFI_Error_Code_ABORTED,
                   Buffers(frame->args.size, frame->args.args) + Attributes(frame->attrs) +
                       Buffers(frame->rets.size, frame->rets.rets) + ";");
}

extern "C" XLA_FFI_Error* of_another_version(XLA_FFI_CallFrame* frame) {
  IsMetadata(frame, 0, 6);
  return nullptr;
}

// The functions that version 0.5 has at the end of the table, and the code of an error; headers may be older.
extern "C" XLA_FFI_Error* of_version_0_5(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 5)) return nullptr;
  struct Find { size_t size; void* extensions; void* ctx; int64_t type; const void* extension; };
  struct Options { size_t size; void* extensions; void* ctx; const XLA_FFI_Attrs* attrs; };
  struct Details { size_t size; void* extensions; XLA_FFI_Error* error; const char* message; int code; };
  auto* last = reinterpret_cast<void* const*>(&frame->api->XLA_FFI_DeviceOrdinal_Get);
  auto* details_of = reinterpret_cast<void (*)(Details*)>(reinterpret_cast<void* const*>(&frame->api->XLA_FFI_Error_Create)[1]);
  int other = 0;
  Find find{sizeof(Find), nullptr, frame->ctx, 4711, &other};
  Options options{sizeof(Options), nullptr, frame->ctx, nullptr};
  XLA_FFI_Error* error = reinterpret_cast<XLA_FFI_Error* (*)(Find*)>(last[1])(&find);
  if (!error) error = reinterpret_cast<XLA_FFI_Error* (*)(Options*)>(last[2])(&options);
  if (error) return error;
  Details details{sizeof(Details), nullptr, MakeError(frame->api, XLA_FFI_Error_Code_DATA_LOSS, "lost"), nullptr, -1};
  details_of(&details);
  std::string found = std::string(find.extension ? "an extension" : "no extension") + ", " +
                      std::to_string(options.attrs->size) + " options of " + std::to_string(options.attrs->struct_size) +
                      " bytes, " + details.message + " " + std::to_string(details.code);
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, details.error};
  frame->api->XLA_FFI_Error_Destroy(&destroy);
  return MakeError(frame->api, XLA_FFI_Error_Code_ABORTED, found);
}

extern "C" XLA_FFI_Error* of_no_version(XLA_FFI_CallFrame* frame) { return nullptr; }

extern "C" XLA_FFI_Error* fails_to_say(XLA_FFI_CallFrame* frame) {
  return MakeError(frame->api, XLA_FFI_Error_Code_FAILED_PRECONDITION, "not here");
}

// Calls functions of the table with arguments of an older version, and those that have nothing to give.
extern "C" XLA_FFI_Error* misuse(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 3)) return nullptr;
  std::string found;
  auto note = [&](XLA_FFI_Error* error) {
    XLA_FFI_Error_GetDetails_Args get{XLA_FFI_Error_GetDetails_Args_STRUCT_SIZE, nullptr, error, nullptr};
    frame->api->XLA_FFI_Error_GetDetails(&get);
    found += std::string(get.message) + "; ";
    XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    frame->api->XLA_FFI_Error_Destroy(&destroy);
  };
  XLA_FFI_DeviceMemory_Allocate_Args old{8, nullptr, frame->ctx, 8, 8, nullptr};
  note(frame->api->XLA_FFI_DeviceMemory_Allocate(&old));
  size_t size = XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE;
  XLA_FFI_DeviceMemory_Allocate_Args odd{size, nullptr, frame->ctx, 8, 3, nullptr};
  note(frame->api->XLA_FFI_DeviceMemory_Allocate(&odd));
  XLA_FFI_DeviceMemory_Allocate_Args huge{size, nullptr, frame->ctx, ~size_t{0} - 8, 8, nullptr};
  note(frame->api->XLA_FFI_DeviceMemory_Allocate(&huge));
  int other = 0;
  XLA_FFI_DeviceMemory_Free_Args foreign{XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, nullptr, frame->ctx, 4, &other};
  note(frame->api->XLA_FFI_DeviceMemory_Free(&foreign));
  XLA_FFI_Stream_Get_Args stream{XLA_FFI_Stream_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, nullptr};
  note(frame->api->XLA_FFI_Stream_Get(&stream));
  XLA_FFI_RunId_Get_Args run{XLA_FFI_RunId_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, 0};
  note(frame->api->XLA_FFI_RunId_Get(&run));
  XLA_FFI_TypeId type{77};
  XLA_FFI_State_Set_Args set{XLA_FFI_State_Set_Args_STRUCT_SIZE, nullptr, frame->ctx, XLA_FFI_ExecutionStage_PREPARE,
                             &type, &other};
  note(frame->api->XLA_FFI_State_Set(&set));
  set.stage = XLA_FFI_ExecutionStage_EXECUTE;
  note(frame->api->XLA_FFI_State_Set(&set));
  XLA_FFI_State_Get_Args get{XLA_FFI_State_Get_Args_STRUCT_SIZE, nullptr, frame->ctx,
                             XLA_FFI_ExecutionStage_INITIALIZE, &type, nullptr};
  note(frame->api->XLA_FFI_State_Get(&get));
  return MakeError(frame->api, XLA_FFI_Error_Code_ABORTED, found);
}

// ---------------------------------------------------------------------- attributes, buffers, element types
static Error Affine(F32 x, float scale, ffi::Span<const double> shift, std::string_view how, RetF32 y) {
  if (how != "plus" && how != "minus") return Error::InvalidArgument("how is " + std::string(how));
  for (size_t i = 0; i < x.element_count(); i++) {
    float s = static_cast<float>(shift[i % shift.size()]);
    y->typed_data()[i] = scale * x.typed_data()[i] + (how == "plus" ? s : -s);
  }
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(affine, Affine,
                              ffi::Ffi::Bind().Arg<F32>().Attr<float>("scale").Attr<ffi::Span<const double>>("shift")
                                  .Attr<std::string_view>("how").Ret<F32>());

static Error Copy(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  for (size_t i = 0; i < args.size(); i++) {
    auto from = args.get<ffi::AnyBuffer>(i);
    auto to = rets.get<ffi::AnyBuffer>(i);
    if (!from || !to) return Error::Internal("fewer results than operands");
    if (from->element_type() == ffi::TOKEN) continue;
    std::memcpy((*to)->untyped_data(), from->untyped_data(), from->size_bytes());
  }
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(copy, Copy, ffi::Ffi::Bind().RemainingArgs().RemainingRets());

static Error AddOne(F32 x, ffi::Token, RetF32 y, ffi::Result<ffi::Token>) {
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] + 1;
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(add_one_in_order, AddOne,
                              ffi::Ffi::Bind().Arg<F32>().Arg<ffi::Token>().Ret<F32>().Ret<ffi::Token>());

static Error Increment(F32 x, RetF32 y) {
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] + 1;
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(increment, Increment, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

// Each element is the sum of a row, by numbers of rows and columns.
static Error RowSums(ffi::BufferR2<ffi::F32> x, ffi::ResultBufferR1<ffi::F32> y) {
  auto dims = x.dimensions();
  for (int64_t i = 0; i < dims[0]; i++) {
    y->typed_data()[i] = 0;
    for (int64_t j = 0; j < dims[1]; j++) y->typed_data()[i] += x.typed_data()[i * dims[1] + j];
  }
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(row_sums, RowSums,
                              ffi::Ffi::Bind().Arg<ffi::BufferR2<ffi::F32>>().Ret<ffi::BufferR1<ffi::F32>>());

// ---------------------------------------------------------------------- errors
static Error FailAbove(F32 x, float limit, RetF32 y) {
  for (size_t i = 0; i < x.element_count(); i++) {
    if (x.typed_data()[i] > limit) return Error(ErrorCode::kOutOfRange, "element " + std::to_string(i) + " is too large");
    y->typed_data()[i] = x.typed_data()[i];
  }
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(fail_above, FailAbove, ffi::Ffi::Bind().Arg<F32>().Attr<float>("limit").Ret<F32>());

static Error Throws(F32, RetF32) { throw std::runtime_error("thrown on purpose"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(throws, Throws, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

static Error ThrowsNumber(F32, RetF32) { throw 3; }
XLA_FFI_DEFINE_HANDLER_SYMBOL(throws_number, ThrowsNumber, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

static Error ThrowsAtFirst() { throw std::runtime_error("thrown at first"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(throws_at_first, ThrowsAtFirst, ffi::Ffi::BindInstantiate());

// ---------------------------------------------------------------------- states
static std::atomic<int64_t> alive{0};

struct Counter {
  static ffi::TypeId id;
  explicit Counter(int64_t start) : calls(start) { alive++; }
  ~Counter() { alive--; }
  std::atomic<int64_t> calls;
};
ffi::TypeId Counter::id = {};

struct Other {
  static ffi::TypeId id;
};
ffi::TypeId Other::id = {};

extern "C" {
int64_t counters_alive() { return alive.load(); }
ffi::TypeId* counter_id() { return &Counter::id; }
const ffi::TypeInfo* counter_info() {
  static const ffi::TypeInfo info = ffi::MakeTypeInfo<Counter>();
  return &info;
}
ffi::TypeId* other_id() { return &Other::id; }
}

static ffi::ErrorOr<std::unique_ptr<Counter>> MakeCounter(int64_t start) {
  if (start < 0) return ffi::Unexpected(Error::InvalidArgument("a counter below 0"));
  return std::make_unique<Counter>(start);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(counter_instantiate, MakeCounter, ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));

static Error Count(Counter* counter, ffi::ResultBufferR0<ffi::S64> calls) {
  *calls->typed_data() = ++counter->calls;
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(counter_execute, Count,
                              ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::BufferR0<ffi::S64>>());

static Error CountOther(Other*, ffi::ResultBufferR0<ffi::S64>) { return Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(counter_of_another_type, CountOther,
                              ffi::Ffi::Bind().Ctx<ffi::State<Other>>().Ret<ffi::BufferR0<ffi::S64>>());

// What a call prepares and initializes is its own: 10 and 200 more than the instance has.
static ffi::ErrorOr<std::unique_ptr<Counter>> Prepare() { return std::make_unique<Counter>(10); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(staged_prepare, Prepare, ffi::Ffi::BindPrepare());

static ffi::ErrorOr<std::unique_ptr<Counter>> Initialize(Counter* prepared) {
  return std::make_unique<Counter>(200 + prepared->calls++);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(staged_initialize, Initialize, ffi::Ffi::BindInitialize().Ctx<ffi::Prepared<Counter>>());

static Error Staged(Counter* instance, Counter* prepared, Counter* initialized, ffi::ResultBufferR0<ffi::S64> out) {
  *out->typed_data() = 1000 * ++instance->calls + prepared->calls + initialized->calls;
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(staged_execute, Staged,
                              ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ctx<ffi::Prepared<Counter>>()
                                  .Ctx<ffi::Initialized<Counter>>().Ret<ffi::BufferR0<ffi::S64>>());

static Error CannotPrepare() { return Error(ErrorCode::kUnavailable, "nothing is ready"); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(cannot_prepare, CannotPrepare, ffi::Ffi::BindPrepare());

// ---------------------------------------------------------------------- memory, threads, futures
static Error Reverse(ffi::ScratchAllocator scratch, F32 x, int64_t alignment, RetF32 y) {
  size_t n = x.element_count();
  for (int turn = 0; turn < 3; turn++) {
    auto memory = scratch.Allocate(sizeof(float) * n, alignment);
    if (!memory) return Error::Internal("no memory");
    if (reinterpret_cast<uintptr_t>(*memory) % alignment) return Error::Internal("not aligned");
    auto* copy = static_cast<float*>(*memory);
    for (size_t i = 0; i < n; i++) copy[i] = x.typed_data()[n - 1 - i];
    std::memcpy(y->typed_data(), copy, sizeof(float) * n);
  }
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(reverse, Reverse,
                              ffi::Ffi::Bind().Ctx<ffi::ScratchAllocator>().Arg<F32>().Attr<int64_t>("alignment").Ret<F32>());

// Does not free what it has allocated.
extern "C" XLA_FFI_Error* leaves_memory(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 3)) return nullptr;
  for (int i = 0; i < 4; i++) {
    XLA_FFI_DeviceMemory_Allocate_Args args{XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                            1 << 20, 64, nullptr};
    if (auto* error = frame->api->XLA_FFI_DeviceMemory_Allocate(&args)) return error;
    std::memset(args.data, 1, 1 << 20);
  }
  return nullptr;
}

static Error Pooled(ffi::ThreadPool pool, F32 x, RetF32 y) {
  int64_t n = x.element_count();
  std::atomic<int64_t> left{n};
  if (pool.num_threads() < 1) return Error::Internal("no threads");
  for (int64_t i = 0; i < n; i++) {
    pool.Schedule([&, i] {
      y->typed_data()[i] = x.typed_data()[i] + 1;
      left--;
    });
  }
  while (left > 0) std::this_thread::yield();
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(pooled, Pooled, ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Ret<F32>());

// So many tasks meet; all run at the same time, or they give up. The result is how many threads there are.
static Error Rally(ffi::ThreadPool pool, int64_t tasks, int64_t seconds, ffi::ResultBufferR0<ffi::S64> threads) {
  std::atomic<int64_t> here{0}, left{tasks};
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (int64_t i = 0; i < tasks; i++) {
    pool.Schedule([&] {
      here++;
      while (here < tasks && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      left--;
    });
  }
  while (left > 0) std::this_thread::yield();
  if (std::chrono::steady_clock::now() >= end) return Error(ErrorCode::kDeadlineExceeded, "they did not meet");
  *threads->typed_data() = pool.num_threads();
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(rally, Rally,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Attr<int64_t>("tasks").Attr<int64_t>("seconds")
                                  .Ret<ffi::BufferR0<ffi::S64>>());

// Another thread computes; a `code` other than 0 is what it ends with.
static ffi::Future Later(F32 x, int64_t code, int64_t milliseconds, RetF32 y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([=]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] + 1;
    if (code) {
      promise.SetError(Error(static_cast<ErrorCode>(code), "it was not to be"));
    } else {
      promise.SetAvailable();
    }
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(later, Later,
                              ffi::Ffi::Bind().Arg<F32>().Attr<int64_t>("code").Attr<int64_t>("milliseconds").Ret<F32>());

// Meets another call: both are in the handler at the same time, or this one gives up.
static std::atomic<int> inside{0};
static Error Meet(F32 x, RetF32 y) {
  inside++;
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (inside < 2) {
    if (std::chrono::steady_clock::now() > end) return Error(ErrorCode::kDeadlineExceeded, "nobody came");
    std::this_thread::yield();
  }
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] + 1;
  return Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(meet, Meet, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

// The number of the process in its grid.
extern "C" XLA_FFI_Error* ordinal(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 3)) return nullptr;
  XLA_FFI_DeviceOrdinal_Get_Args args{XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, -1};
  if (auto* error = frame->api->XLA_FFI_DeviceOrdinal_Get(&args)) return error;
  *static_cast<int32_t*>(static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0])->data) = args.device_ordinal;
  return nullptr;
}

// Registers a type by the table; a second time with another deleter.
extern "C" XLA_FFI_Error* registers_type(XLA_FFI_CallFrame* frame) {
  if (IsMetadata(frame, 0, 3)) return nullptr;
  static ffi::TypeId id{};
  static const char name[] = "from the table";
  ffi::TypeInfo info{XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, nullptr};
  if (auto* error = ffi::Ffi::RegisterTypeId(frame->api, name, &id, info)) return error;
  if (auto* error = ffi::Ffi::RegisterTypeId(frame->api, name, &id, info)) return error;
  if (id == ffi::TypeId{0}) return MakeError(frame->api, XLA_FFI_Error_Code_INTERNAL, "no number");
  info.deleter = +[](void*) {};
  return ffi::Ffi::RegisterTypeId(frame->api, name, &id, info);
}
