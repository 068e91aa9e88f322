// What every peer is given: the arguments of the model's tool call, its answer,
// and the tool, which does nothing.
export const callID = 'call_x';
export const args = { order_id: 'A-1002' };
export const answer = 'Your order A-1002 is taken care of.';
export const result = { order_id: 'A-1002', status: 'processing', total: '250.00' };
export const description = "Cancel an order. Irreversible.";

// toolOf is the tool that the model asks for: cancel_order, which needs approval,
// or lookup_order.
export const toolOf = (capability) => (capability === 'approve' ? 'cancel_order' : 'lookup_order');
