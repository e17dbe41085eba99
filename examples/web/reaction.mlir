// Two substances that spread and react (Gray and Scott's model), some steps on, and a picture of them.
module @reaction {
  // The field with a row and a column of the other side around it.
  func.func private @wrapped(%x: tensor<256x256xf32>) -> tensor<258x258xf32> {
    %top = stablehlo.slice %x [255:256, 0:256] : (tensor<256x256xf32>) -> tensor<1x256xf32>
    %bottom = stablehlo.slice %x [0:1, 0:256] : (tensor<256x256xf32>) -> tensor<1x256xf32>
    %tall = stablehlo.concatenate %top, %x, %bottom, dim = 0
      : (tensor<1x256xf32>, tensor<256x256xf32>, tensor<1x256xf32>) -> tensor<258x256xf32>
    %left = stablehlo.slice %tall [0:258, 255:256] : (tensor<258x256xf32>) -> tensor<258x1xf32>
    %right = stablehlo.slice %tall [0:258, 0:1] : (tensor<258x256xf32>) -> tensor<258x1xf32>
    %whole = stablehlo.concatenate %left, %tall, %right, dim = 1
      : (tensor<258x1xf32>, tensor<258x256xf32>, tensor<258x1xf32>) -> tensor<258x258xf32>
    return %whole : tensor<258x258xf32>
  }

  // How much more of a substance is around a point than at it.
  func.func private @around(%x: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %w = call @wrapped(%x) : (tensor<256x256xf32>) -> tensor<258x258xf32>
    %n = stablehlo.slice %w [0:256, 1:257] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %s = stablehlo.slice %w [2:258, 1:257] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %e = stablehlo.slice %w [1:257, 2:258] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %o = stablehlo.slice %w [1:257, 0:256] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %ne = stablehlo.slice %w [0:256, 2:258] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %se = stablehlo.slice %w [2:258, 2:258] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %no = stablehlo.slice %w [0:256, 0:256] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %so = stablehlo.slice %w [2:258, 0:256] : (tensor<258x258xf32>) -> tensor<256x256xf32>
    %beside = stablehlo.constant dense<0.2> : tensor<256x256xf32>
    %across = stablehlo.constant dense<0.05> : tensor<256x256xf32>
    %0 = stablehlo.add %n, %s : tensor<256x256xf32>
    %1 = stablehlo.add %e, %o : tensor<256x256xf32>
    %2 = stablehlo.add %0, %1 : tensor<256x256xf32>
    %3 = stablehlo.multiply %2, %beside : tensor<256x256xf32>
    %4 = stablehlo.add %ne, %se : tensor<256x256xf32>
    %5 = stablehlo.add %no, %so : tensor<256x256xf32>
    %6 = stablehlo.add %4, %5 : tensor<256x256xf32>
    %7 = stablehlo.multiply %6, %across : tensor<256x256xf32>
    %8 = stablehlo.add %3, %7 : tensor<256x256xf32>
    %9 = stablehlo.subtract %8, %x : tensor<256x256xf32>
    return %9 : tensor<256x256xf32>
  }

  // Blends from one colour to another, as bytes.
  func.func private @channel(%t: tensor<256x256xf32>, %low: tensor<f32>, %high: tensor<f32>) -> tensor<256x256x1xui8> {
    %from = stablehlo.broadcast_in_dim %low, dims = [] : (tensor<f32>) -> tensor<256x256xf32>
    %to = stablehlo.broadcast_in_dim %high, dims = [] : (tensor<f32>) -> tensor<256x256xf32>
    %span = stablehlo.subtract %to, %from : tensor<256x256xf32>
    %part = stablehlo.multiply %t, %span : tensor<256x256xf32>
    %value = stablehlo.add %from, %part : tensor<256x256xf32>
    %byte = stablehlo.convert %value : (tensor<256x256xf32>) -> tensor<256x256xui8>
    %channel = stablehlo.reshape %byte : (tensor<256x256xui8>) -> tensor<256x256x1xui8>
    return %channel : tensor<256x256x1xui8>
  }

  // The second substance as a picture: red, green, blue, opacity.
  func.func private @picture(%v: tensor<256x256xf32>) -> tensor<256x256x4xui8> {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %most = stablehlo.constant dense<255.0> : tensor<f32>
    %scale = stablehlo.constant dense<2.6> : tensor<256x256xf32>
    %scaled = stablehlo.multiply %v, %scale : tensor<256x256xf32>
    %t = stablehlo.clamp %zero, %scaled, %one : (tensor<f32>, tensor<256x256xf32>, tensor<f32>) -> tensor<256x256xf32>
    %root = stablehlo.sqrt %t : tensor<256x256xf32>
    %square = stablehlo.multiply %t, %t : tensor<256x256xf32>
    %r0 = stablehlo.constant dense<12.0> : tensor<f32>
    %g0 = stablehlo.constant dense<18.0> : tensor<f32>
    %b0 = stablehlo.constant dense<48.0> : tensor<f32>
    %g1 = stablehlo.constant dense<235.0> : tensor<f32>
    %b1 = stablehlo.constant dense<190.0> : tensor<f32>
    %r = call @channel(%square, %r0, %most) : (tensor<256x256xf32>, tensor<f32>, tensor<f32>) -> tensor<256x256x1xui8>
    %g = call @channel(%t, %g0, %g1) : (tensor<256x256xf32>, tensor<f32>, tensor<f32>) -> tensor<256x256x1xui8>
    %b = call @channel(%root, %b0, %b1) : (tensor<256x256xf32>, tensor<f32>, tensor<f32>) -> tensor<256x256x1xui8>
    %a = stablehlo.constant dense<255> : tensor<256x256x1xui8>
    %all = stablehlo.concatenate %r, %g, %b, %a, dim = 2
      : (tensor<256x256x1xui8>, tensor<256x256x1xui8>, tensor<256x256x1xui8>, tensor<256x256x1xui8>) -> tensor<256x256x4xui8>
    return %all : tensor<256x256x4xui8>
  }

  func.func public @steps(%u: tensor<256x256xf32>, %v: tensor<256x256xf32>, %feed: tensor<f32>, %kill: tensor<f32>, %count: tensor<i32>)
      -> (tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256x4xui8>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %ones = stablehlo.constant dense<1.0> : tensor<256x256xf32>
    %half = stablehlo.constant dense<0.5> : tensor<256x256xf32>
    %added = stablehlo.broadcast_in_dim %feed, dims = [] : (tensor<f32>) -> tensor<256x256xf32>
    %0 = stablehlo.add %feed, %kill : tensor<f32>
    %taken = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<256x256xf32>
    %last:3 = stablehlo.while(%i = %zero, %p = %u, %q = %v) : tensor<i32>, tensor<256x256xf32>, tensor<256x256xf32>
    cond {
      %more = stablehlo.compare LT, %i, %count : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %pq = stablehlo.multiply %p, %q : tensor<256x256xf32>
      %reacted = stablehlo.multiply %pq, %q : tensor<256x256xf32>
      %spread_p = func.call @around(%p) : (tensor<256x256xf32>) -> tensor<256x256xf32>
      %around_q = func.call @around(%q) : (tensor<256x256xf32>) -> tensor<256x256xf32>
      %spread_q = stablehlo.multiply %around_q, %half : tensor<256x256xf32>
      %room = stablehlo.subtract %ones, %p : tensor<256x256xf32>
      %fed = stablehlo.multiply %room, %added : tensor<256x256xf32>
      %killed = stablehlo.multiply %q, %taken : tensor<256x256xf32>
      %p1 = stablehlo.add %p, %spread_p : tensor<256x256xf32>
      %p2 = stablehlo.subtract %p1, %reacted : tensor<256x256xf32>
      %p3 = stablehlo.add %p2, %fed : tensor<256x256xf32>
      %q1 = stablehlo.add %q, %spread_q : tensor<256x256xf32>
      %q2 = stablehlo.add %q1, %reacted : tensor<256x256xf32>
      %q3 = stablehlo.subtract %q2, %killed : tensor<256x256xf32>
      stablehlo.return %next, %p3, %q3 : tensor<i32>, tensor<256x256xf32>, tensor<256x256xf32>
    }
    %shown = call @picture(%last#2) : (tensor<256x256xf32>) -> tensor<256x256x4xui8>
    return %last#1, %last#2, %shown : tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256x4xui8>
  }
}
