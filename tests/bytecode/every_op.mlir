// Every op that VHLO has, a function for each family.
func.func @unary(%x: tensor<4x6xf32>, %v: tensor<4xi32>) {
  %0 = stablehlo.abs %x : tensor<4x6xf32>
  %1 = stablehlo.cbrt %0 : tensor<4x6xf32>
  %2 = stablehlo.ceil %1 : tensor<4x6xf32>
  %3 = stablehlo.cosine %2 : tensor<4x6xf32>
  %4 = stablehlo.exponential %3 : tensor<4x6xf32>
  %5 = stablehlo.exponential_minus_one %4 : tensor<4x6xf32>
  %6 = stablehlo.floor %5 : tensor<4x6xf32>
  %7 = stablehlo.log %6 : tensor<4x6xf32>
  %8 = stablehlo.log_plus_one %7 : tensor<4x6xf32>
  %9 = stablehlo.logistic %8 : tensor<4x6xf32>
  %10 = stablehlo.negate %9 : tensor<4x6xf32>
  %11 = stablehlo.round_nearest_afz %10 : tensor<4x6xf32>
  %12 = stablehlo.round_nearest_even %11 : tensor<4x6xf32>
  %13 = stablehlo.rsqrt %12 : tensor<4x6xf32>
  %14 = stablehlo.sign %13 : tensor<4x6xf32>
  %15 = stablehlo.sine %14 : tensor<4x6xf32>
  %16 = stablehlo.sqrt %15 : tensor<4x6xf32>
  %17 = stablehlo.tanh %16 : tensor<4x6xf32>
  %18 = stablehlo.convert %17 : (tensor<4x6xf32>) -> tensor<4x6xf16>
  %19 = stablehlo.is_finite %17 : (tensor<4x6xf32>) -> tensor<4x6xi1>
  %20 = stablehlo.not %v : tensor<4xi32>
  %21 = stablehlo.popcnt %20 : tensor<4xi32>
  %22 = stablehlo.count_leading_zeros %21 : tensor<4xi32>
  %23 = stablehlo.reduce_precision %x, format = e5m10 : tensor<4x6xf32>
  %24 = stablehlo.bitcast_convert %x : (tensor<4x6xf32>) -> tensor<4x6xi32>
  return
}

func.func @binary(%x: tensor<4x6xf32>, %v: tensor<4xi32>, %s: tensor<f32>) {
  %0 = stablehlo.add %x, %x : tensor<4x6xf32>
  %1 = stablehlo.atan2 %x, %0 : tensor<4x6xf32>
  %2 = stablehlo.divide %0, %1 : tensor<4x6xf32>
  %3 = stablehlo.maximum %1, %2 : tensor<4x6xf32>
  %4 = stablehlo.minimum %2, %3 : tensor<4x6xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<4x6xf32>
  %6 = stablehlo.power %4, %5 : tensor<4x6xf32>
  %7 = stablehlo.remainder %5, %6 : tensor<4x6xf32>
  %8 = stablehlo.subtract %6, %7 : tensor<4x6xf32>
  %9 = stablehlo.and %v, %v : tensor<4xi32>
  %10 = stablehlo.or %v, %9 : tensor<4xi32>
  %11 = stablehlo.xor %9, %10 : tensor<4xi32>
  %12 = stablehlo.shift_left %10, %11 : tensor<4xi32>
  %13 = stablehlo.shift_right_arithmetic %11, %12 : tensor<4xi32>
  %14 = stablehlo.shift_right_logical %12, %13 : tensor<4xi32>
  %15 = stablehlo.complex %x, %x : tensor<4x6xcomplex<f32>>
  %16 = stablehlo.real %15 : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
  %17 = stablehlo.imag %15 : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xf32>
  %18 = stablehlo.compare GE, %x, %x : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
  %19 = stablehlo.compare NE, %v, %v, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
  %20 = stablehlo.select %18, %x, %0 : tensor<4x6xi1>, tensor<4x6xf32>
  %21 = stablehlo.clamp %s, %x, %s : (tensor<f32>, tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  return
}

func.func private @constants() -> tensor<1000000x1000000xi16> attributes {note = "no text", numbers = [1, 2.5, true]} {
  %0 = stablehlo.constant dense<[[1.5, -2.0], [0x7FC00000, 0.1]]> : tensor<2x2xf32>
  %1 = stablehlo.constant dense<true> : tensor<9xi1>
  %2 = stablehlo.constant dense<[true, false, true, false, false, false, false, true]> : tensor<8xi1>
  %3 = stablehlo.constant dense<[-3, 7]> : tensor<2xi4>
  %4 = stablehlo.constant dense<(1.0, -2.5)> : tensor<complex<f64>>
  %5 = stablehlo.constant dense<> : tensor<0x3xi64>
  %6 = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
  %7 = stablehlo.constant dense<false> : tensor<i1>
  %8 = stablehlo.constant dense<[0.5, -0.0, 448.0]> : tensor<3xf8E4M3FN>
  %9 = stablehlo.iota dim = 1 : tensor<4x5xui8>
  %10 = stablehlo.constant dense<7> : tensor<1000000x1000000xi16>
  return %10 : tensor<1000000x1000000xi16>
}

func.func @shapes(%x: tensor<4x6xf32>, %s: tensor<f32>, %p: tensor<2xi32>) {
  %0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>
  %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %2 = stablehlo.reverse %x, dims = [0, 1] : tensor<4x6xf32>
  %3 = stablehlo.slice %x [0:4:2, 1:6] : (tensor<4x6xf32>) -> tensor<2x5xf32>
  %4 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x6xf32>
  %5 = stablehlo.broadcast %s, sizes = [3, 2] : (tensor<f32>) -> tensor<3x2xf32>
  %6 = stablehlo.pad %x, %s, low = [1, -1], high = [0, 2], interior = [0, 1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<5x12xf32>
  %7 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %8 = "stablehlo.torch_index_select"(%x, %p) {dim = 0 : i64, batch_dims = 0 : i64} : (tensor<4x6xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  return
}

func.func @dynamic(%x: tensor<4x6xf32>, %s: tensor<f32>, %p: tensor<2xi32>, %i: tensor<i32>) {
  %0 = stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 3] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  %1 = stablehlo.dynamic_update_slice %x, %0, %i, %i : (tensor<4x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
  %2 = stablehlo.dynamic_iota %p, dim = 0 : (tensor<2xi32>) -> tensor<?x?xf32>
  %3 = stablehlo.dynamic_reshape %x, %p : (tensor<4x6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %4 = stablehlo.dynamic_pad %x, %s, %p, %p, %p : (tensor<4x6xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %5 = stablehlo.real_dynamic_slice %x, %p, %p, %p : (tensor<4x6xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %6 = "stablehlo.dynamic_broadcast_in_dim"(%s, %p) {broadcast_dimensions = array<i64>} : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>
  %7 = stablehlo.get_dimension_size %6, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %8 = stablehlo.set_dimension_size %x, %i, dim = 0 : (tensor<4x6xf32>, tensor<i32>) -> tensor<?x6xf32, #stablehlo.bounds<4, ?>>
  return
}

func.func @indices(%x: tensor<4x6xf32>, %p: tensor<2xi32>, %u: tensor<2x6xf32>) {
  %0 = "stablehlo.gather"(%x, %p) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>, indices_are_sorted = true} : (tensor<4x6xf32>, tensor<2xi32>) -> tensor<2x6xf32>
  %1 = "stablehlo.dynamic_gather"(%x, %p, %p) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>} : (tensor<4x6xf32>, tensor<2xi32>, tensor<2xi32>) -> tensor<2x?xf32>
  %2 = "stablehlo.scatter"(%x, %p, %u) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    stablehlo.return %r : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true} : (tensor<4x6xf32>, tensor<2xi32>, tensor<2x6xf32>) -> tensor<4x6xf32>
  return
}

func.func @products(%w: tensor<4x4xf32>, %x: tensor<4x6xf32>, %a: tensor<1x4x4x2xf32>, %k: tensor<3x3x2x5xf32>, %q: tensor<2x2xi32>) {
  %0 = stablehlo.dot %w, %w, precision = [HIGHEST, DEFAULT] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = stablehlo.einsum %w, %w, config = "ab,bc->ac" : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %3 = stablehlo.unary_einsum %w, config = "ab->a" : (tensor<4x4xf32>) -> tensor<4xf32>
  %4 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 2], pad = [[1, 1], [0, 2]], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x4x2x5xf32>
  %5 = "stablehlo.dynamic_conv"(%a, %k, %q) {dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>, tensor<2x2xi32>) -> tensor<1x?x?x5xf32>
  return
}

func.func @reductions(%x: tensor<4x6xf32>, %s: tensor<f32>) {
  %0 = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = "stablehlo.reduce_window"(%x, %s) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.maximum %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 0]]> : tensor<2x2xi64>} : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  %u = stablehlo.slice %x [0:2, 0:2] : (tensor<4x6xf32>) -> tensor<2x2xf32>
  %2 = "stablehlo.select_and_scatter"(%x, %u, %s) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.compare GE, %l, %r : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %m : tensor<i1>
  }, {
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 3>} : (tensor<4x6xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x6xf32>
  %3 = "stablehlo.sort"(%x) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.compare LT, %l, %r, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %m : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = "stablehlo.map"(%x, %x) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {dimensions = array<i64: 0, 1>} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

func.func @control(%x: tensor<4x6xf32>, %i: tensor<i32>, %b: tensor<i1>) {
  %0 = "stablehlo.if"(%b) ({
    stablehlo.return %x : tensor<4x6xf32>
  }, {
    %n = stablehlo.negate %x : tensor<4x6xf32>
    stablehlo.return %n : tensor<4x6xf32>
  }) : (tensor<i1>) -> tensor<4x6xf32>
  %1 = "stablehlo.case"(%i) ({
    stablehlo.return %0 : tensor<4x6xf32>
  }, {
    %n = stablehlo.add %0, %x : tensor<4x6xf32>
    stablehlo.return %n : tensor<4x6xf32>
  }) : (tensor<i32>) -> tensor<4x6xf32>
  %2:2 = stablehlo.while(%n = %i, %y = %1) : tensor<i32>, tensor<4x6xf32>
    cond {
    %t = stablehlo.compare LT, %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    %m = stablehlo.add %n, %n : tensor<i32>
    stablehlo.return %m, %y : tensor<i32>, tensor<4x6xf32>
  }
  %3 = stablehlo.optimization_barrier %2#1 : tensor<4x6xf32>
  %4 = stablehlo.tuple %3, %i : tuple<tensor<4x6xf32>, tensor<i32>>
  %5 = stablehlo.get_tuple_element %4[1] : (tuple<tensor<4x6xf32>, tensor<i32>>) -> tensor<i32>
  %6 = func.call @callee(%5) : (tensor<i32>) -> tensor<i32>
  return
}

func.func private @callee(%arg0: tensor<i32> {my.name = "n"}) -> (tensor<i32> {my.unit = {a = 1 : i32}}) {
  return %arg0 : tensor<i32>
}

func.func private @declared(tensor<?xf32>, !stablehlo.token) -> tuple<tensor<1xbf16>>

func.func @calls(%x: tensor<4x6xf32>, %t: !stablehlo.token) {
  %0 = stablehlo.custom_call @target(%x) {has_side_effect = true, backend_config = "options", api_version = 2 : i32, called_computations = [@callee], operand_layouts = [dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = stablehlo.create_token : !stablehlo.token
  %2 = stablehlo.after_all %1, %t : !stablehlo.token
  %3:2 = "stablehlo.infeed"(%2) {infeed_config = "in", layout = [[0, 1]]} : (!stablehlo.token) -> (tensor<4x6xf32>, !stablehlo.token)
  %4 = "stablehlo.outfeed"(%x, %2) {outfeed_config = "out"} : (tensor<4x6xf32>, !stablehlo.token) -> !stablehlo.token
  %5 = "stablehlo.send"(%x, %2) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true} : (tensor<4x6xf32>, !stablehlo.token) -> !stablehlo.token
  %6:2 = "stablehlo.recv"(%5) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true} : (!stablehlo.token) -> (tensor<4x6xf32>, !stablehlo.token)
  return
}

func.func @processes(%x: tensor<4x6xf32>) {
  %0 = stablehlo.partition_id : tensor<ui32>
  %1 = stablehlo.replica_id : tensor<ui32>
  %2 = "stablehlo.all_gather"(%x) {all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids} : (tensor<4x6xf32>) -> tensor<4x12xf32>
  %3 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %4 = "stablehlo.all_to_all"(%x) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x6xf32>) -> tensor<8x3xf32>
  %5 = "stablehlo.reduce_scatter"(%x) ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %m = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %m : tensor<f32>
  }) {scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x6xf32>) -> tensor<4x3xf32>
  %6 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %7 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

func.func @numbers(%x: tensor<4x6xf32>, %c: tensor<6xf32>, %w: tensor<4x4xf32>, %z: tensor<8xcomplex<f32>>, %s: tensor<f32>, %n: tensor<2xi64>, %key: tensor<2xui64>) {
  %0 = "stablehlo.batch_norm_inference"(%x, %c, %c, %c, %c) {epsilon = 0.001 : f32, feature_index = 1 : i64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %1:3 = "stablehlo.batch_norm_training"(%x, %c, %c) {epsilon = 0.001 : f32, feature_index = 1 : i64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %2:3 = "stablehlo.batch_norm_grad"(%x, %c, %c, %c, %x) {epsilon = 0.001 : f32, feature_index = 1 : i64} : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>)
  %3 = stablehlo.cholesky %w, lower = true : tensor<4x4xf32>
  %4 = "stablehlo.triangular_solve"(%3, %w) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose ADJOINT>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %5 = stablehlo.fft %z, type = IFFT, length = [8] : (tensor<8xcomplex<f32>>) -> tensor<8xcomplex<f32>>
  %6 = stablehlo.rng %s, %s, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<?x?xf32>
  %7:2 = stablehlo.rng_bit_generator %key, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
  return
}

func.func @quantized(%x: tensor<3xf32>) {
  %0 = stablehlo.uniform_quantize %x : (tensor<3xf32>) -> tensor<3x!quant.uniform<u8:f32, 5.000000e-01:3>>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<3x!quant.uniform<u8:f32, 5.000000e-01:3>>) -> tensor<3xf32>
  return
}
